"""One simulated run of a scenario, from a seed or from the decisions of an earlier run.

In: a function of a `Simulation`. Out: an `Outcome`, or a `SimulationError` with everything that
is needed to see it again.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tallystick.callables import checked
from tallystick.storage.files import FileSystem
from tallystick.testing.memory import MemoryFileSystem
from tallystick.testing.simulate.decisions import Answers, Decisions, from_text, to_text
from tallystick.testing.simulate.disk import SimulatedFileSystem, digest, survivor
from tallystick.testing.simulate.machine import Contents, Machine
from tallystick.testing.simulate.primitives import Thread
from tallystick.testing.simulate.scheduler import (
    STEPS_MAX,
    Life,
    Participant,
    Scheduler,
    error_text,
    set_current,
)
from tallystick.testing.simulate.swap import fixed_urandom, set_urandom, swapped

_STEPS_SHOWN: Final = 12
Scenario = Callable[["Simulation"], object]
"""Runs code under test on a `Simulation`, and asserts what must hold."""


class Simulation:
    """What a scenario works with.

    Attributes:
        disk: the disk between two lives of the machine; what recovery is to be checked on. Its
            calls do not fail.
        random: for the scenario's own choices; by the seed, and not by the schedule.
        states: hashes of the disks that lives have left.
    """

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self.disk = MemoryFileSystem()
        self.random = random.Random(seed)
        self.states: set[bytes] = set()
        self._scheduler = scheduler
        self._lives = 0
        self._processes = 0
        self._boots = 1
        self._left: dict[str, Contents] = {}

    def spawn(self, body: Callable[..., object], *args: Any, name: str | None = None) -> Thread:
        """Start a thread; the scenario must hold without it too, for a short counterexample.

        Args:
            body: what it does. What it raises and does not catch fails the run.
            args: passed to it.
            name: told in traces.

        Returns:
            The thread, to be joined.
        """
        thread = Thread(target=body, args=args, name=name or body.__name__, optional=True)
        thread.start()
        return thread

    def process(self, body: Callable[..., object], *args: Any, name: str | None = None) -> Thread:
        """Start a process of the machine, within `until_crash`.

        The seed may kill it at any step, or stop it for a while. Its threads end with it, and its
        locks are free then; what it has stored to shared memory or written to files stays. The
        scenario must hold without it too. What processes share is their disk and what
        `tallystick.storage.shared` maps and locks; objects of Python that they share are the
        scenario's model.

        Args:
            body: its main function. What it raises and does not catch fails the run.
            args: passed to it.
            name: told in traces.

        Returns:
            Its main thread, to be joined.
        """
        scheduler, decisions = self._scheduler, self._scheduler.decisions
        machine = scheduler.running.life if scheduler.running is not None else None
        if machine is None:
            raise RuntimeError("a process is started within `Simulation.until_crash` only")
        self._processes += 1
        name = f"{name or body.__name__}-{self._processes}"
        step, milliseconds = decisions.stop_at(name)
        life = Life(
            name,
            decisions.kill_at(name),
            machine.machine,
            parent=machine.parent or machine,
            freeze=(step, milliseconds * 1_000_000),
        )

        def run() -> None:
            body(*args)
            scheduler.stop(life)

        thread = Thread(target=run, name=name, optional=True, life=life)
        thread.start()
        return thread

    def pause(self) -> None:
        """Let another participant go on here, if the seed says so."""
        self._scheduler.point("pause")

    def until_crash(self, body: Callable[[FileSystem], object], *, spread: int = 1) -> bool:
        """Run one life of the machine: to the end of ``body``, or until the machine stops.

        Afterwards `disk` is what the next life finds: everything, as after a kill, or what a
        power cut leaves of what was not synced.

        Args:
            body: takes the file system of this life. Every thread that it starts ends with it.
            spread: the machine stops within the first 512 steps times this, if it stops.

        Returns:
            True if the body came to its end.
        """
        scheduler, decisions = self._scheduler, self._scheduler.decisions
        self._lives += 1
        name = f"life-{self._lives}"
        fs = SimulatedFileSystem(scheduler, self.disk)
        machine = Machine(fs, f"boot-{self._boots}", self._left)
        life = Life(name, decisions.crash_at(name, spread), machine)
        first = scheduler.start(name, partial(body, fs), life)
        while first.alive:
            scheduler.block(first)
        ended = not life.stopped
        if ended:
            scheduler.stop(life)
        power_cut = decisions.disk(name)
        self._boots += power_cut is not None
        self._left = machine.left()
        self.disk = survivor(self.disk, power_cut)
        self.states.add(digest(self.disk))
        return ended


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that came to its end.

    Attributes:
        seed: as given.
        steps: scheduling points that were passed.
        trace: hash of every step; equal runs have equal traces.
        decisions: the answers that were not the default.
        states: hashes of the disks that were left by crashes and ends, and checked.
    """

    seed: int
    steps: int
    trace: str
    decisions: Answers = field(repr=False)
    states: frozenset[bytes] = field(repr=False)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.steps:,} steps, {len(self.states):,} states of disks checked"
        )


class SimulationError(AssertionError):
    """A run has failed; the message says how to see it again.

    Attributes:
        seed: of the run.
        decisions: its answers that were not the default.
        trace: hash of its steps.
        cause: what was raised.
    """

    def __init__(
        self, name: str, seed: int, scheduler: Scheduler, cause: BaseException, options: str = ""
    ) -> None:
        self.seed = seed
        self.decisions = dict(scheduler.decisions.made)
        self.trace = scheduler.trace
        self.steps = scheduler.steps
        self.cause = cause
        self.last_steps = scheduler.last_steps[-_STEPS_SHOWN:]
        self.name = name
        self.options = options
        self.participants = list(scheduler.by_name)
        self.shrunk = scheduler.decisions.given is not None
        super().__init__(self.report())

    @property
    def signature(self) -> tuple[str, str]:
        """Return what kind of failure it is: the error's class, and where it was raised."""
        trace = self.cause.__traceback__
        place = ""
        while trace is not None:
            code = trace.tb_frame.f_code
            place = f"{code.co_filename}:{trace.tb_lineno}"
            trace = trace.tb_next
        return type(self.cause).__name__, place

    @property
    def replay(self) -> str:
        """Return the command that runs it again."""
        schedule = f' --schedule "{to_text(self.decisions)}"' if self.shrunk else ""
        command = "python -m tallystick.testing.simulate"
        return f"{command} {self.name} --seed {self.seed}{self.options}{schedule}"

    def report(self) -> str:
        """Return the failure, its last steps and its decisions as text."""
        steps = "\n  ".join(self.last_steps)
        return (
            f"{type(self.cause).__name__}: {self.cause}\n"
            f"{len(self.decisions)} decisions in {self.steps} steps: {to_text(self.decisions)}\n"
            f"the last steps:\n  {steps}\n"
            f"{error_text(self.cause)}\n"
            f"to run it again:\n  {self.replay}"
        )


def simulate(
    scenario: Scenario,
    seed: int = 0,
    *,
    schedule: str | Mapping[str, str] | None = None,
    modules: Sequence[str] = (),
    faults: bool = True,
    crashes: bool = True,
    fine: bool = False,
    steps_max: int = STEPS_MAX,
) -> Outcome:
    """Run a scenario once.

    Args:
        scenario: uses the code under test and asserts what must hold.
        seed: decides everything: who runs when, which calls fail, when the machine stops.
        schedule: the decisions of a failure, to see exactly that again; the seed then decides
            only what the scenario draws from `Simulation.random`.
        modules: names of modules and packages of yours whose `threading`, `time` and `queue` are
            to be simulated; they have to be imported before. Those of tallystick always are.
        faults: False lets no call fail, no clock jump, and no wait time out while others can go
            on; otherwise any participant may be so slow that it does.
        crashes: False never stops the machine, and lets no power fail.
        fine: True lets others go on between any two lines of ``modules`` too; slower.
        steps_max: steps after which a run is taken for one that does not end.

    Returns:
        How the run went.

    Raises:
        SimulationError: an assertion failed, a participant raised something, nobody could go
            on, or the run did not end.
    """
    scenario = checked(scenario, "a scenario")
    given = from_text(schedule) if isinstance(schedule, str) else schedule
    decisions = Decisions(seed, given, faults=faults, crashes=crashes)
    with swapped(modules, fine=fine):
        return _run(scenario, seed, decisions, steps_max, _options(modules, faults, crashes, fine))


def _run(
    scenario: Scenario, seed: int, decisions: Decisions, steps_max: int, options: str
) -> Outcome:
    scheduler = Scheduler(decisions, steps_max)
    simulation = Simulation(scheduler, seed)
    urandom = os.urandom
    set_current(scheduler)
    set_urandom(fixed_urandom())
    main: Participant = scheduler.start("main", partial(scenario, simulation), None)
    try:
        scheduler.run(main)
    except Exception as error:
        raise SimulationError(_name_of(scenario), seed, scheduler, error, options) from error
    finally:
        set_urandom(urandom)
        set_current(None)
    states = frozenset(simulation.states)
    return Outcome(seed, scheduler.steps, scheduler.trace, decisions.made, states)


def _name_of(scenario: Scenario) -> str:
    module = getattr(scenario, "__module__", "")
    if module == "__main__":
        module = os.path.splitext(os.path.basename(sys.argv[0]))[0]  # noqa: PTH119, PTH122
    return f"{module}:{getattr(scenario, '__qualname__', scenario)}"


def _options(modules: Sequence[str], faults: bool, crashes: bool, fine: bool) -> str:
    words = [f" --module {name}" for name in modules]
    words += [" --no-faults"] if not faults else []
    words += [" --no-crashes"] if not crashes else []
    words += [" --fine"] if fine else []
    return "".join(words)
