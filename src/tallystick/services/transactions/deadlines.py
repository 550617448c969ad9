"""Limits of time, kept from outside of the threads whose calls wait.

In: transactions at work and connections in use, with the time by which they have to be done. Out:
ended sessions, whose calls then fail instead of waiting (`Reaper`), and calls of resources that are
given up (`TimedResource`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from tallystick.posix import after_fork_in_child
from tallystick.printable import logger
from tallystick.services.transactions.resource import Resource, ResourceUnreachable, is_instant
from tallystick.services.transactions.two_phase_commit import LiveTransactions, TwoPhaseCommit
from tallystick.storage.fork import Uncopied
from tallystick.storage.opening import is_running, join_thread, start_thread
from tallystick.storage.scheduling import living_threads, simulated, threading, time
from tallystick.storage.signals import uninterrupted

_log = logger("tallystick.transactions")

_Result = TypeVar("_Result")

TICK_S = 0.1
GRACE_S = 3.0
"""Seconds after the end of a thread in which another one may go on with its transaction."""

_CALLS = frozenset(
    {
        "commit", "forget_outcomes", "has_outcome", "identity", "in_doubt", "outcomes",
        "outcomes_of", "preflight", "rollback",
    }
)  # fmt: skip
"""Calls of a resource that may wait for its database."""


class Reaper(Uncopied):
    """Ends the sessions of one manager's transactions and calls that take too long.

    One daemon thread works for all managers of a process; in a simulation each has its own.

    A transaction that nothing refers to any more, or whose thread has ended some seconds ago and
    has not handed it on, is ended, too: rolled back, or left to recovery once it is prepared.

    Args:
        live: the transactions of the manager.
        resources: those of the manager.
        call_timeout: seconds that one call of a resource may take.
    """

    def __init__(
        self, live: LiveTransactions, resources: Iterable[Resource], call_timeout: float
    ) -> None:
        self._live = live
        self._resources = resources
        self._call_timeout = call_timeout
        self._without_thread: dict[bytes, float] = {}
        self._rounds = _Rounds() if simulated() else _ROUNDS

    def start(self) -> None:
        """Begin to look at the manager's transactions, until it is closed or collected."""
        self._rounds.add(self)

    def stop(self) -> None:
        """Leave the manager's transactions alone from now on."""
        self._rounds.discard(self)

    def look(self) -> None:
        """End what takes too long now."""
        transactions = self._live.at_work()
        if self._without_thread:  # others have ended some of them
            known = {one.gtrid for one in transactions} & self._without_thread.keys()
            self._without_thread = {gtrid: self._without_thread[gtrid] for gtrid in known}
        if transactions:
            threads, now = living_threads(), time.monotonic()
            for transaction in transactions:
                if self._is_gone(transaction, threads, now):
                    if self._was_left(transaction):
                        self._end(transaction)
                else:
                    self._live.abort_if_late(transaction, time.monotonic())
        self.end_calls(time.monotonic() - self._call_timeout)

    def _is_gone(self, transaction: TwoPhaseCommit, threads: Iterable[int], now: float) -> bool:
        """Return True if nobody can end the transaction any more, or seems to want to."""
        if transaction.owner is None:
            return False
        owner = transaction.owner()
        if owner is not None and owner.ends_with not in (None, *threads):
            return now - self._without_thread.setdefault(transaction.gtrid, now) >= GRACE_S
        self._without_thread.pop(transaction.gtrid, None)
        return owner is None

    def end_calls(self, before: float) -> None:
        """End the sessions of calls that began before this moment of the monotonic clock."""
        for resource in list(self._resources):
            reap = getattr(resource, "reap", None)
            if reap is not None:
                reap(before)

    def _was_left(self, transaction: TwoPhaseCommit) -> bool:
        """Return True if it is certain that nobody can end the transaction any more.

        Since it was listed it may have ended, and others use its sessions; or a thread that is
        younger than the list of threads has resumed it. So look again, in this order: the owner's
        thread, the threads that live, and whether it is at work: its owner outlives that.
        """
        owner = None if transaction.owner is None else transaction.owner()
        thread = None if owner is None else owner.ends_with
        if owner is not None and (thread is None or thread in living_threads()):
            return False
        return self._live.has(transaction)

    def _end(self, transaction: TwoPhaseCommit) -> None:
        extra = {"gtrid": transaction.gtrid.hex(), "resources": list(transaction.branches)}
        _log.warning("a transaction was left without an end; it is ended", extra=extra)
        # In a thread of its own: the branch of a resource unknown to us may wait.
        start_thread(threading.Thread(target=transaction.discard, daemon=True))
        transaction.owner = None  # only now: if no thread can be started, it is ended later
        self._without_thread.pop(transaction.gtrid, None)


class _Rounds(Uncopied):
    """A daemon thread that looks at the transactions of all managers until there are none."""

    def __init__(self) -> None:
        self._reapers: weakref.WeakSet[Reaper] = weakref.WeakSet()
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()

    def add(self, reaper: Reaper) -> None:
        with self._starting:
            self._reapers.add(reaper)
            if not self._threads:
                thread = threading.Thread(target=self._run, name="tallystick-reaper", daemon=True)
                start_thread(thread)
                self._threads.append(thread)

    def discard(self, reaper: Reaper) -> None:
        with self._starting:
            self._reapers.discard(reaper)

    def _run(self) -> None:
        # A simulation may begin meanwhile, of which a real thread is no part.
        sleep, in_simulation = time.sleep, simulated()
        while True:
            sleep(TICK_S)
            if simulated() is not in_simulation:
                continue
            with self._starting:
                reapers = list(self._reapers)
            for reaper in reapers:
                try:
                    reaper.look()
                except Exception:  # a driver may raise anything; other transactions go on
                    _log.exception("a transaction that took too long could not be ended")
            reapers.clear()  # managers may be collected
            reaper = None  # type: ignore[assignment]
            with self._starting:
                if not self._reapers:
                    self._threads.clear()
                    return

    def after_fork(self) -> None:
        """Forget the thread, which a child process does not have, and what its parent looks after.

        Transactions of the parent look as if they were left: their threads are not in the child.
        """
        self._starting = threading.Lock()
        self._threads.clear()
        self._reapers.clear()


_ROUNDS = _Rounds()
after_fork_in_child(_ROUNDS.after_fork)


class Call(Uncopied, Generic[_Result]):
    """A call in a thread of its own, once another one has ended; what it returned or raised."""

    def __init__(self, work: Callable[[], _Result], after: Call[Any] | None = None) -> None:
        self._work = work
        self._after = after if after is not None and after.is_under_way else None
        self._result: _Result
        self._error: BaseException | None = None
        self._ending = threading.Lock()
        self._has_result = False
        self._unwanted: Callable[[_Result], object] | None = None
        self._thread = threading.Thread(target=self._run, name="tallystick-call", daemon=True)
        start_thread(self._thread)

    def _run(self) -> None:
        try:
            if self._after is not None:
                self._after._thread.join()
                self._after = None
            result = self._work()
            with self._ending:
                self._result, self._has_result = result, True
                unwanted = self._unwanted
            if unwanted is not None:
                unwanted(result)
        except BaseException as error:
            self._error = error

    @property
    def is_under_way(self) -> bool:
        """Whether it has not ended yet."""
        return is_running(self._thread)

    def result(self, deadline: float) -> _Result:
        """Return the result, or raise what the call raised.

        Raises:
            TimeoutError: there was none by the deadline of the monotonic clock.
        """
        with uninterrupted:
            join_thread(self._thread, deadline - time.monotonic())
        if self.is_under_way:
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._result

    def give_up(self, unwanted: Callable[[_Result], object]) -> None:
        """Have ``unwanted`` called with the result once there is one: nobody waits for it."""
        with uninterrupted:
            with self._ending:
                self._unwanted = unwanted
                has_result = self._has_result
            if has_result:
                unwanted(self._result)


class TimedResource(Uncopied):
    """A resource whose calls are given up after a time.

    A call that was given up goes on in its thread; until it ends, other calls are refused. So does
    one whose caller was interrupted: the next call begins when it has ended.

    Args:
        resource: one whose calls may wait.
        seconds: the time for each call.
    """

    def __init__(self, resource: Resource, seconds: float) -> None:
        self.name = resource.name
        self.resource = resource
        self._seconds = seconds
        self._given_up: Call[Any] | None = None
        self._last: Call[Any] | None = None

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self.resource, attribute)
        if attribute not in _CALLS:
            return found
        return lambda *arguments: self.start(lambda: found(*arguments))()

    def close(self) -> None:
        """Close the resource, while a call that was given up may go on."""
        self._given_up = self._last = None
        self.start(self.resource.close)()

    def start(self, work: Callable[[], _Result]) -> Callable[[], _Result]:
        """Begin a call, and return a function that waits for its result.

        Raises:
            ResourceUnreachable: an earlier call has had no answer yet. The function raises it, too.
        """
        if self._given_up is not None and self._given_up.is_under_way:
            raise ResourceUnreachable("an earlier call has had no answer yet")
        deadline = time.monotonic() + self._seconds
        try:
            with uninterrupted:
                call = Call(work, self._last)
                self._last = call
        except OSError as error:
            raise ResourceUnreachable(str(error)) from error

        def wait() -> _Result:
            try:
                return call.result(deadline)
            except TimeoutError as error:
                if not call.is_under_way:  # the resource raised it
                    raise
                self._given_up = call
                raise ResourceUnreachable(f"no answer within {self._seconds:g} s") from error

        return wait


class TimedResources:
    """Resources with a limit for their calls, except those that never wait.

    Args:
        resources: by name; they may change.
        seconds: the limit.
    """

    def __init__(self, resources: Mapping[str, Resource], seconds: float) -> None:
        self._resources = resources
        self._seconds = seconds
        self._timed: dict[str, TimedResource] = {}

    def now(self) -> dict[str, Resource]:
        """Return the resources that there are now, by name."""
        return {name: self._limited(name, one) for name, one in list(self._resources.items())}

    def _limited(self, name: str, resource: Resource) -> Resource:
        if is_instant(resource):
            return resource
        if name not in self._timed or self._timed[name].resource is not resource:
            self._timed[name] = TimedResource(resource, self._seconds)
        return self._timed[name]


def start_call(resource: Resource, attribute: str) -> Callable[[], Any]:
    """Begin a call without arguments, if that is possible ahead; return what waits for it."""
    if isinstance(resource, TimedResource):
        return resource.start(getattr(resource.resource, attribute))
    found: Callable[[], Any] = getattr(resource, attribute)
    return found
