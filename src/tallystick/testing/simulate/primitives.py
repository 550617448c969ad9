"""Locks, threads and clocks of a simulation, under the names of `threading` and `time`.

In: calls as of the standard library. Out: the same results, and a scheduling point in each call.
`THREADING`, `TIME` and `QUEUE` stand for the modules. A name that they do not have is not
simulated, and using it says so.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, Final

from tallystick.testing.simulate.decisions import TIME as CLOCK
from tallystick.testing.simulate.scheduler import Life, Participant, current

_WALL_NS: Final = 1_700_000_000 * 10**9
"""The wall clock at the beginning of a run, in nanoseconds since 1970."""
_WALL_TICK_NS: Final = 1_000_000
"""Resolution of the simulated wall clock: the bytes of a log do not depend on every step."""


def _deadline(timeout: float | None) -> int | None:
    if timeout is None or timeout < 0:
        return None
    return current().clock_ns + int(timeout * 1e9)


class Lock:
    """As `threading.Lock`: unfair, and to be released by any thread."""

    def __init__(self) -> None:
        self.waiters: list[Participant] = []
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock."""
        scheduler = current()
        scheduler.point("acquire")
        if self._held and blocking:
            deadline = _deadline(timeout)
            while self._held:
                if not scheduler.block(self, deadline):
                    return False
        if self._held:
            return False
        self._held = True
        return True

    def release(self) -> None:
        """Let another have the lock; raises `RuntimeError` if it is free."""
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        scheduler = current()
        scheduler.wake(self)
        scheduler.point("release")

    def locked(self) -> bool:
        """Return True if someone holds it."""
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock:
    """As `threading.RLock`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: Participant | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock, or take it once more."""
        me = current().running
        if self._owner is me and me is not None:
            self._count += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        """Undo one `acquire`."""
        if self._owner is None or self._owner is not current().running:
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def held(self) -> bool:
        """Return True if the caller holds it."""
        return self._owner is not None and self._owner is current().running

    _is_owned = held

    def give_up(self) -> int:
        """Release it wholly; returns how often it was taken."""
        count, self._count, self._owner = self._count, 0, None
        self._lock.release()
        return count

    def take_back(self, count: int) -> None:
        """Take it again as it was before `give_up`."""
        self._lock.acquire()
        self._owner, self._count = current().running, count

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Token:
    """What one waiter of a condition waits for."""

    __slots__ = ("told", "waiters")

    def __init__(self) -> None:
        self.waiters: list[Participant] = []
        self.told = False


class Condition:
    """As `threading.Condition`."""

    def __init__(self, lock: Lock | RLock | None = None) -> None:
        self._lock = RLock() if lock is None else lock
        self._waiting: list[_Token] = []
        self.acquire = self._lock.acquire
        self.release = self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock until notified, then take it again."""
        self._check()
        token, deadline = _Token(), _deadline(timeout)
        self._waiting.append(token)
        scheduler = current()
        count = 0
        if isinstance(self._lock, RLock):
            count = self._lock.give_up()
        else:
            self._lock.release()
        try:
            while not token.told and scheduler.block(token, deadline):
                pass
        finally:
            if token in self._waiting:
                self._waiting.remove(token)
            if isinstance(self._lock, RLock):
                self._lock.take_back(count)
            else:
                self._lock.acquire()
        return token.told

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until the predicate holds; returns its last value."""
        deadline = _deadline(timeout)
        result = predicate()
        while not result:
            left = None if deadline is None else (deadline - current().clock_ns) / 1e9
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        """Wake so many waiters, those that came first."""
        self._check()
        for token in self._waiting[:n]:
            token.told = True
            current().wake(token)
        del self._waiting[:n]

    def notify_all(self) -> None:
        """Wake all waiters."""
        self.notify(len(self._waiting))

    def _check(self) -> None:
        held = self._lock.held() if isinstance(self._lock, RLock) else self._lock.locked()
        if not held:
            raise RuntimeError("cannot wait on or notify a lock that is not held")


class Event:
    """As `threading.Event`."""

    def __init__(self) -> None:
        self.waiters: list[Participant] = []
        self._set = False

    def is_set(self) -> bool:
        """Return True once it is set."""
        current().point("is_set")
        return self._set

    def set(self) -> None:
        """Wake everyone who waits, now and later."""
        self._set = True
        scheduler = current()
        scheduler.wake(self)
        scheduler.point("set")

    def clear(self) -> None:
        """Have callers wait again."""
        self._set = False
        current().point("clear")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; returns False if it is not in time."""
        scheduler = current()
        scheduler.point("wait")
        deadline = _deadline(timeout)
        while not self._set:
            if not scheduler.block(self, deadline):
                break
        return self._set


class Semaphore(threading.Semaphore):
    """As `threading.Semaphore`."""

    def __init__(self, value: int = 1) -> None:
        super().__init__(value)
        self._cond = Condition(Lock())


class BoundedSemaphore(threading.BoundedSemaphore):
    """As `threading.BoundedSemaphore`."""

    def __init__(self, value: int = 1) -> None:
        super().__init__(value)
        self._cond = Condition(Lock())


class Thread:
    """As `threading.Thread`; what it raises and does not catch fails the run.

    ``optional`` tells shrinking that it may leave the thread out; ``life`` is another life than
    that of the participant that starts it.
    """

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
        optional: bool = False,
        life: Life | None = None,
    ) -> None:
        del group
        self._life = life
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self._target = target
        self._args = tuple(args)
        self._kwargs = dict(kwargs or {})
        self._optional = optional
        self._participant: Participant | None = None

    def start(self) -> None:
        """Start it."""
        if self._participant is not None:
            raise RuntimeError("threads can only be started once")
        scheduler = current()
        life = scheduler.running.life if scheduler.running is not None else None
        self._participant = scheduler.start(self.name, self._run, self._life or life)
        self._participant.thread = self
        scheduler.point("start")

    def _run(self) -> None:
        assert self._participant is not None, "it runs, so it was started"
        if self._optional and current().decisions.left_out(self._participant.name):
            return
        self.run()

    def run(self) -> None:
        """Call the target; a subclass may do something else."""
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        if self._participant is None:
            raise RuntimeError("cannot join thread before it is started")
        scheduler = current()
        scheduler.point("join")
        deadline = _deadline(timeout)
        while self._participant.alive:
            if not scheduler.block(self._participant, deadline):
                break

    def is_alive(self) -> bool:
        """Return True until it has ended."""
        return self._participant is not None and self._participant.alive

    @property
    def ident(self) -> int | None:
        """Return its number, None before its start."""
        return None if self._participant is None else _ident_of(self._participant)

    native_id = ident


class Local:
    """As `threading.local`, without subclasses that have an ``__init__``."""

    def _values(self) -> dict[str, Any]:
        me = current().running
        return {} if me is None else me.local.setdefault(id(self), {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._values()[name] = value

    def __delattr__(self, name: str) -> None:
        if self._values().pop(name, self) is self:
            raise AttributeError(name)


def _ident_of(participant: Participant) -> int:
    return -participant.number  # no thread of the system has such a number


def get_ident() -> int:
    """Return the number of the participant that runs."""
    me = current().running
    return 0 if me is None else _ident_of(me)


def current_thread() -> Any:
    """Return the thread that runs."""
    me = current().running
    return threading.current_thread() if me is None else _thread_of(me)


def _thread_of(participant: Participant) -> Any:
    if participant.thread is None:
        thread = Thread(name=participant.name)
        thread._participant = participant
        participant.thread = thread
    return participant.thread


def living_threads() -> list[Any]:
    """Return the threads that have not ended, as `threading.enumerate`."""
    return [_thread_of(one) for one in current().participants if one.alive]


def sleep(seconds: float) -> None:
    """Let virtual time pass."""
    current().sleep(int(seconds * 1e9))


def monotonic_ns() -> int:
    """Return virtual nanoseconds; each look takes some, so that polling ends."""
    scheduler = current()
    scheduler.clock_ns += 1
    return scheduler.clock_ns


def monotonic() -> float:
    """Return virtual seconds."""
    return monotonic_ns() / 1e9


def time_ns() -> int:
    """Return the simulated wall clock in nanoseconds since 1970; it may be set at any time."""
    scheduler = current()
    me = scheduler.running
    if me is not None:
        jump = scheduler.decisions.clock_jump(me.question(CLOCK))
        scheduler.wall_offset_ns += int(jump * 1e9)
    passed = scheduler.clock_ns // _WALL_TICK_NS * _WALL_TICK_NS
    return _WALL_NS + passed + scheduler.wall_offset_ns


def wall_time() -> float:
    """Return the simulated wall clock in seconds since 1970."""
    return time_ns() / 1e9


class Names(ModuleType):
    """Stands for a module of the standard library, and has what is simulated of it."""

    def __init__(self, module: ModuleType, **names: Any) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.__name__}.{name} is not simulated")


THREADING: Final = Names(
    threading,
    Lock=Lock, RLock=RLock, Condition=Condition, Event=Event, Semaphore=Semaphore,
    BoundedSemaphore=BoundedSemaphore, Thread=Thread, local=Local, get_ident=get_ident,
    get_native_id=get_ident, current_thread=current_thread, enumerate=living_threads,
    main_thread=threading.main_thread,
    TIMEOUT_MAX=threading.TIMEOUT_MAX, excepthook=threading.excepthook,
    ThreadError=threading.ThreadError,
)  # fmt: skip
"""Stands for `threading`."""

TIME: Final = Names(
    time,
    sleep=sleep, monotonic=monotonic, monotonic_ns=monotonic_ns, perf_counter=monotonic,
    perf_counter_ns=monotonic_ns, time=wall_time, time_ns=time_ns,
    process_time=monotonic, thread_time=monotonic, gmtime=time.gmtime,
    localtime=time.localtime, strftime=time.strftime, mktime=time.mktime,
    struct_time=time.struct_time, asctime=time.asctime,
)  # fmt: skip
"""Stands for `time`."""


def _simulated_queue() -> ModuleType:
    """Return the standard library's queues over the locks of this module."""
    spec = importlib.util.find_spec("queue")
    assert spec is not None, "part of the standard library"
    assert spec.loader is not None, "a module in Python"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    simulated = vars(module)
    simulated.update(threading=THREADING, time=monotonic, SimpleQueue=module._PySimpleQueue)
    return module


QUEUE: Final = _simulated_queue()
"""Stands for `queue`."""
