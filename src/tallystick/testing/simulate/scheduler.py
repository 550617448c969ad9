"""Participants that run one at a time, each until the next point where another could go on.

In: functions, and the answers of `Decisions`. Out: one interleaving of them, the same for the same
answers. Participants are greenlets: a switch costs less than a microsecond, so that a schedule
of a small system takes about a millisecond. Time is virtual: it passes while all wait, and by a
microsecond per step.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import traceback
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final, Protocol

from greenlet import GreenletExit, getcurrent, greenlet

from tallystick.testing.simulate.decisions import ORDER, SWITCH, Decisions

STEP_NS: Final = 1000
"""Nanoseconds of virtual time that each step takes."""
STEPS_MAX: Final = 50_000
"""Steps after which a run is taken for one that does not end."""
_THROWS_MAX: Final = 100
_HERE: Final = "tallystick/testing/simulate/"


class Killed(GreenletExit):
    """Ends a participant whose machine has stopped, or whose run is over."""


class DeadlockError(AssertionError):
    """Every participant waits, and no time that passes will wake one."""


class EndlessError(AssertionError):
    """The run has taken more steps than a run may."""


class Waitable(Protocol):
    """Something that participants wait for."""

    waiters: list[Participant]


class Life:
    """One life of the simulated machine, or of a process on it: its participants end together.

    Args:
        name: told in traces.
        crash_at: the step at which it ends.
        machine: what its processes share.
        parent: the life of the machine, if it is that of a process.
        freeze: the step at which the process is stopped, and for how many nanoseconds.

    Attributes:
        steps: scheduling points that its participants have passed.
        crash_at: the step at which the machine stops, or the process is killed; 0 if it is not.
        stopped: True once it has.
        frozen_until: the virtual time up to which the process is stopped by a signal.
    """

    __slots__ = (
        "crash_at", "freeze", "frozen_until", "machine", "name", "parent", "steps", "stopped",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        crash_at: int,
        machine: object = None,
        *,
        parent: Life | None = None,
        freeze: tuple[int, int] = (0, 0),
    ) -> None:
        self.name = name
        self.crash_at = crash_at
        self.machine = machine
        self.parent = parent
        self.freeze = freeze
        self.frozen_until = 0
        self.steps = 0
        self.stopped = False

    def within(self, life: Life) -> bool:
        """Return True if it is this life, or that of a process on this machine."""
        return self is life or self.parent is life

    @property
    def over(self) -> bool:
        """True once it or its machine has stopped."""
        return self.stopped or (self.parent is not None and self.parent.stopped)


class Participant:
    """A thread of the simulation."""

    __slots__ = (
        "asked",
        "body",
        "deadline",
        "error",
        "glet",
        "killed",
        "life",
        "local",
        "loop",
        "name",
        "number",
        "ready",
        "running_loop",
        "steps",
        "thread",
        "waiters",
        "waits_for",
    )

    def __init__(self, name: str, number: int, body: Callable[[], object], life: Life | None):
        self.name = name
        self.number = number
        self.body = body
        self.life = life
        self.glet: greenlet | None = None
        self.ready = True
        self.killed = False
        self.steps = 0
        self.asked: dict[str, int] = {}
        self.deadline: int | None = None
        self.waits_for: Waitable | None = None
        self.waiters: list[Participant] = []
        self.error: BaseException | None = None
        self.running_loop: asyncio.AbstractEventLoop | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.local: dict[int, dict[str, Any]] = {}
        self.thread: Any = None

    @property
    def alive(self) -> bool:
        """True until its function has ended."""
        return self.glet is not None

    def question(self, kind: str) -> str:
        """Return the key of its next question of a kind."""
        count = self.asked[kind] = self.asked.get(kind, 0) + 1
        return f"{self.name}.{kind}{count}"

    def place(self) -> str:
        """Return where it is, as text: the innermost calls outside of the simulator."""
        frames = list(_frames(self.glet.gr_frame if self.glet is not None else None))
        shown = [one for one in frames if _HERE not in one.f_code.co_filename.replace("\\", "/")]
        calls = [
            f"{one.f_code.co_filename}:{one.f_lineno} in {one.f_code.co_name}" for one in shown[:4]
        ]
        what = type(self.waits_for).__name__ if self.waits_for is not None else "nothing"
        until = "" if self.deadline is None else f" until {self.deadline / 1e9:.6f} s"
        return f"{self.name} waits for {what}{until}\n    " + "\n    ".join(calls or ["not begun"])


def _frames(frame: FrameType | None) -> Iterable[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


class Scheduler:
    """Runs participants in the order that the decisions say.

    Args:
        decisions: answers every question.
        steps_max: steps after which the run fails.

    Attributes:
        clock_ns: virtual nanoseconds since the beginning.
        running: the participant that runs now.
        participants: those alive, in the order of their starts.
    """

    def __init__(self, decisions: Decisions, steps_max: int = STEPS_MAX) -> None:
        self.decisions = decisions
        self.clock_ns = 0
        self.wall_offset_ns = 0
        self.steps = 0
        self.running: Participant | None = None
        self.participants: list[Participant] = []
        self.by_name: dict[str, Participant] = {}
        self._steps_max = steps_max
        self._names: dict[str, int] = {}
        self._trace: list[str] = []
        self._hub = getcurrent()
        self._next: Participant | None = None
        self._failure: BaseException | None = None
        self._stopping: Life | None = None
        self._count = 0

    # -- for the simulation -----------------------------------------------------------------

    def start(self, name: str, body: Callable[[], object], life: Life | None) -> Participant:
        """Add a participant, which runs from one of the next points on."""
        name = self._unique(name)
        self._count += 1
        participant = Participant(name, self._count, body, life)
        participant.glet = greenlet(lambda: self._run_body(participant), self._hub)
        self.participants.append(participant)
        self.by_name[name] = participant
        return participant

    def run(self, main: Participant) -> None:
        """Run until ``main`` ends; end all others then.

        Raises:
            DeadlockError: nobody can go on.
            EndlessError: there were too many steps.
            BaseException: what a participant has raised and not caught.
        """
        try:
            last = main
            self._next = main
            while main.alive:
                chosen = self._next if self._next is not None else self._pick(last)
                self._next = None
                if chosen is None:
                    raise DeadlockError(self.places())
                last = chosen
                self._resume(chosen)
                if chosen.error is not None:
                    raise chosen.error
                if self._failure is not None:
                    raise self._failure
                if self._stopping is not None:
                    life, self._stopping = self._stopping, None
                    self._kill(lambda one, life=life: _belongs(one, life))  # type: ignore[misc]
        finally:
            self._kill(lambda _: True)

    def stop(self, life: Life) -> None:
        """End every participant of a life, without another step of theirs."""
        life.stopped = True
        self._stopping = life
        goes_on = self.running is not None and not _belongs(self.running, life)
        self._next = self.running if goes_on else None
        self._hub.switch()

    def places(self) -> str:
        """Return what every participant waits for, and where, as text."""
        waiting = "\n  ".join(one.place() for one in self.participants)
        return f"nobody can go on, after {self.steps} steps:\n  {waiting}"

    @property
    def trace(self) -> str:
        """Return a hash of every step of every participant, in order."""
        return hashlib.blake2b("\n".join(self._trace).encode(), digest_size=16).hexdigest()

    @property
    def last_steps(self) -> list[str]:
        """Return the steps taken so far, as text, the newest last."""
        return [
            f"{who} {what}" for who, what in zip(self._trace[::2], self._trace[1::2], strict=True)
        ]

    # -- for whatever a participant calls ------------------------------------------------------

    def point(self, what: str) -> None:
        """Let another participant go on here, if the decisions say so; ``what`` is for the trace.

        Raises:
            Killed: the machine has stopped.
        """
        me = self.running
        if me is None:
            return
        if me.killed:
            raise Killed
        self.note(me, what)
        me.steps += 1
        if len(self.participants) > 1 and self.decisions.wants_switch(me.name, me.steps):
            chosen = self._other(me, f"{me.name}.{SWITCH}{me.steps}")
            if chosen is not me:
                self._next = chosen
                self._leave(me)

    def note(self, me: Participant, what: str) -> None:
        """Count a step of a participant, and stop its machine if it is due."""
        self._trace.append(me.name)
        self._trace.append(what)
        self.steps += 1
        self.clock_ns += STEP_NS
        if me.life is not None:
            self._count_step(me, me.life)
        if self.steps > self._steps_max:
            self._failure = EndlessError(
                f"the run has not ended in {self.steps} steps\n{self.places()}"
            )
            self._leave(me)

    def _count_step(self, me: Participant, life: Life) -> None:
        """Count a step of a life, and end or freeze it if that is due."""
        if life.parent is not None:
            life.parent.steps += 1
            if life.parent.steps == life.parent.crash_at:
                self.stop(life.parent)
        life.steps += 1
        if life.steps == life.crash_at:
            self.stop(life)
        step, nanoseconds = life.freeze
        if life.steps == step:
            life.frozen_until = self.clock_ns + nanoseconds
            me.steps += 1  # who goes on is a question of its own
            self._leave(me)

    def block(self, thing: Waitable, deadline: int | None = None) -> bool:
        """Wait until ``thing`` is woken, or the clock shows ``deadline`` nanoseconds.

        Returns:
            False if it is too late.

        Raises:
            Killed: the machine has stopped.
        """
        me = self.running
        if me is None or me.killed:
            raise Killed
        if deadline is not None and deadline <= self.clock_ns:
            return False
        me.ready = False
        me.deadline = deadline
        me.waits_for = thing
        thing.waiters.append(me)
        me.steps += 1
        try:
            self._leave(me)
        finally:
            me.waits_for = None
            if me in thing.waiters:
                thing.waiters.remove(me)
        late, me.deadline = deadline is not None and me.deadline is None, None
        return not late

    def wake(self, thing: Waitable) -> None:
        """Let everyone who waits for ``thing`` look at it again."""
        for one in thing.waiters:
            one.ready = True
        thing.waiters.clear()

    def sleep(self, nanoseconds: int) -> None:
        """Wait for a time."""
        self.point("sleep")
        self.block(_Nothing(), self.clock_ns + max(nanoseconds, 1))

    def reorder(self, count: int) -> int:
        """Return which of ``count`` ready tasks of the running participant's loop is next."""
        me = self.running
        return self.decisions.order(me.question(ORDER), count) if me is not None else 0

    # -- inside -----------------------------------------------------------------------------

    def _unique(self, name: str) -> str:
        name = re.sub(r"[^\w-]+", "-", name).strip("-") or "thread"
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}-{count}"

    def _other(self, me: Participant, question: str) -> Participant:
        awake = [one for one in self.participants if not self._is_frozen(one)]
        ready = [one.name for one in awake if one.ready and one is not me]
        timed = [one.name for one in awake if not one.ready and one.deadline is not None]
        name = self.decisions.switch(question, me.name, ready, timed)
        return me if name is None else self._made_ready(self.by_name[name])

    def _pick(self, last: Participant) -> Participant | None:
        """Choose who runs after ``last`` has gone to sleep or ended."""
        while not (ready := [o for o in self.participants if o.ready and not self._is_frozen(o)]):
            waiting = [one for one in self.participants if not one.ready]
            times = [one.deadline for one in waiting if one.deadline is not None]
            times += [one.life.frozen_until for one in self.participants if one.ready and one.life]
            if not times:
                return None
            self._expire(min(times))
        default = next((one for one in ready if one.number > last.number), ready[0])
        if len(ready) == 1:
            return default
        # Its end is a step of its own: at its last one another question was asked.
        question = f"{last.name}.{SWITCH}{last.steps + (not last.alive)}"
        others = [one.name for one in ready if one is not default]
        return self.by_name[self.decisions.resume(question, default.name, others)]

    def _is_frozen(self, one: Participant) -> bool:
        return one.life is not None and one.life.frozen_until > self.clock_ns

    def _made_ready(self, chosen: Participant) -> Participant:
        if not chosen.ready and chosen.deadline is not None:
            self._expire(chosen.deadline)
        return chosen

    def _expire(self, now: int) -> None:
        """Let virtual time pass until ``now``, and wake those whose time has come."""
        self.clock_ns = max(self.clock_ns, now)
        for one in self.participants:
            if not one.ready and one.deadline is not None and one.deadline <= self.clock_ns:
                one.ready = True
                one.deadline = None

    def _leave(self, me: Participant) -> None:
        self._hub.switch()
        if me.killed:
            raise Killed

    def _resume(self, chosen: Participant) -> None:
        assert chosen.glet is not None, "only a participant that is alive is chosen"
        self.running = chosen
        if chosen.running_loop is not None:
            _set_running_loop(chosen.running_loop)
        chosen.glet.switch()
        chosen.running_loop = _get_running_loop()
        if chosen.running_loop is not None:
            _set_running_loop(None)
        self.running = None

    def _run_body(self, me: Participant) -> None:
        try:
            me.body()
        except GreenletExit:
            pass
        except BaseException as error:
            if not me.killed:
                me.error = error
        finally:
            me.glet = None
            me.ready = False
            self.participants.remove(me)
            self.wake(me)

    def _kill(self, condition: Callable[[Participant], bool]) -> None:
        for one in [one for one in self.participants if condition(one)]:
            self._throw(one)

    def _throw(self, one: Participant) -> None:
        one.killed = True
        for _ in range(_THROWS_MAX):
            if one.glet is None:
                return
            self.running = one
            _set_running_loop(one.running_loop)
            if one.glet:
                one.glet.throw(Killed)
                one.running_loop = _get_running_loop()
            else:  # it has never run
                one.glet = None
                self.participants.remove(one)
                self.wake(one)
            _set_running_loop(None)
            self.running = None
        raise AssertionError(f"{one.name} catches every end: {one.place()}")


def _belongs(one: Participant, life: Life) -> bool:
    return one.life is not None and one.life.within(life)


class _Nothing:
    """What a sleeping participant waits for: time alone wakes it."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: list[Participant] = []


_current: Scheduler | None = None


def current() -> Scheduler:
    """Return the scheduler of the run under way.

    Raises:
        RuntimeError: a simulated lock or clock is used outside of a run.
    """
    if _current is None:
        raise RuntimeError("a simulated lock, thread or clock is used outside of a simulation")
    return _current


def set_current(scheduler: Scheduler | None) -> None:
    """Make a scheduler that of the run under way."""
    global _current
    _current = scheduler


def error_text(error: BaseException) -> str:
    """Return an error and where it was raised, as text."""
    return "".join(traceback.format_exception(error))
