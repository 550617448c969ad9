"""Many schedules of one scenario; the first that fails is made short and told.

In: a scenario and a range of seeds. Out: how many schedules and states were tried, or the failure
with as few decisions as could be found.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tallystick.testing.simulate.decisions import CRASH, DISK, FAULT, OUT, TIME, Answers
from tallystick.testing.simulate.scheduler import STEPS_MAX
from tallystick.testing.simulate.simulation import Outcome, Scenario, SimulationError, simulate
from tallystick.testing.simulate.swap import swapped

_COLLECT_EVERY: Final = 50
"""Runs between two collections of garbage, which waits for the end of a run."""
_TRIES_MAX: Final = 400


@dataclass(slots=True)
class Exploration:
    """How much was tried.

    Attributes:
        schedules: runs, each with a seed of its own.
        interleavings: different traces among them.
        states: hashes of the different disks that crashes and ends have left and checks have seen.
        steps: scheduling points of all runs.
        seconds: time that it took.
    """

    schedules: int = 0
    interleavings: set[str] = field(default_factory=set, repr=False)
    states: set[bytes] = field(default_factory=set, repr=False)
    steps: int = 0
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count a run."""
        self.schedules += 1
        self.steps += outcome.steps
        self.interleavings.add(outcome.trace)
        self.states |= outcome.states

    def __str__(self) -> str:
        each = 1000 * self.seconds / max(self.schedules, 1)
        return (
            f"{self.schedules} schedules ({len(self.interleavings)} different), "
            f"{len(self.states)} disk states, {self.steps} steps, {each:.2f} ms each"
        )


def explore(
    scenario: Scenario,
    seeds: Iterable[int] = range(1000),
    *,
    seconds: float | None = None,
    shrink: bool = True,
    modules: Sequence[str] = (),
    faults: bool = True,
    crashes: bool = True,
    fine: bool = False,
    steps_max: int = STEPS_MAX,
) -> Exploration:
    """Run a scenario with one seed after the other.

    Args:
        scenario: as for `simulate`, like all that is not named here.
        seeds: the seeds.
        seconds: time after which no further run begins.
        shrink: False tells a failure as it was found.
        modules: names of modules and packages of yours that are simulated, too.
        faults: False lets no call fail, no clock jump, and no wait time out too early.
        crashes: False never stops the machine.
        fine: True makes every statement of these modules a scheduling point.
        steps_max: scheduling points after which a run has failed.

    Returns:
        How much was tried.

    Raises:
        SimulationError: a run failed; the shortest one that was found.
    """
    found = Exploration()
    began = time.monotonic()
    options = {
        "modules": modules, "faults": faults, "crashes": crashes, "fine": fine,
        "steps_max": steps_max,
    }  # fmt: skip
    with swapped(modules, fine=fine), _frozen():
        for seed in seeds:
            if seconds is not None and time.monotonic() - began > seconds:
                break
            outcome = _run(scenario, seed, options)
            if isinstance(outcome, SimulationError):
                raise _shortened(scenario, outcome, options) if shrink else outcome
            found.add(outcome)
            if found.schedules % _COLLECT_EVERY == 0:
                gc.collect()
    found.seconds = time.monotonic() - began
    return found


def _run(scenario: Scenario, seed: int, options: dict[str, Any]) -> Outcome | SimulationError:
    try:
        return simulate(scenario, seed, **options)
    except SimulationError as error:
        return error


@contextlib.contextmanager
def _frozen() -> Iterator[None]:
    """Have collections pass over what is there already."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def shortened(
    scenario: Scenario,
    failure: SimulationError,
    *,
    modules: Sequence[str] = (),
    faults: bool = True,
    crashes: bool = True,
    fine: bool = False,
    steps_max: int = STEPS_MAX,
) -> SimulationError:
    """Return the same failure with fewer decisions: of faults, of switches, of participants.

    A decision is left out if the run then still fails in the same way: by the same error, raised
    at the same place.

    Args:
        scenario: as for `simulate`.
        failure: what it raised.
        modules: as it was given to `simulate`, like those after it.
        faults: as it was given.
        crashes: as it was given.
        fine: as it was given.
        steps_max: as it was given.
    """
    options = {
        "modules": modules, "faults": faults, "crashes": crashes, "fine": fine,
        "steps_max": steps_max,
    }  # fmt: skip
    return _shortened(scenario, failure, options)


def _shortened(
    scenario: Scenario, failure: SimulationError, options: dict[str, Any]
) -> SimulationError:
    shrinker = _Shrinker(scenario, failure, options)
    shrinker.restart_from_its_decisions()
    for _ in range(2):
        shrinker.leave_out(lambda key: _kind(key) in (FAULT, TIME))
        shrinker.leave_out(lambda key: _kind(key) not in (FAULT, TIME, CRASH, DISK, OUT))
        shrinker.leave_out(lambda key: _kind(key) in (CRASH, DISK))
        shrinker.leave_out_participants()
    return shrinker.best


def _kind(question: str) -> str:
    return question.rpartition(".")[2].rstrip("0123456789")


class _Shrinker:
    """Tries smaller sets of decisions, and keeps the smallest that fails in the same way."""

    def __init__(self, scenario: Scenario, failure: SimulationError, options: Any) -> None:
        self.best = failure
        self._scenario = scenario
        self._options = options
        self._tries = 0

    def restart_from_its_decisions(self) -> None:
        """Replace the seed by the decisions that it has made."""
        self._try(self.best.decisions)

    def leave_out(self, which: Callable[[str], bool]) -> None:
        """Leave out as many of these decisions as possible, in smaller and smaller portions."""
        keys = [key for key in self.best.decisions if which(key)]
        portion = len(keys)
        while portion:
            place = 0
            while place < len(keys):
                some = set(keys[place : place + portion])
                fewer = {k: v for k, v in self.best.decisions.items() if k not in some}
                if self._try(fewer):
                    keys = [key for key in self.best.decisions if which(key)]
                else:
                    place += portion
            portion //= 2

    def leave_out_participants(self) -> None:
        """Leave out the threads that a scenario has spawned, one by one."""
        for name in sorted(set(self._participants())):
            others = {
                key: value
                for key, value in self.best.decisions.items()
                if not key.startswith(f"{name}.") and value != name
            }
            self._try({**others, f"{name}.{OUT}": "1"}, fewer=False)

    def _participants(self) -> Sequence[str]:
        out = {key.rpartition(".")[0] for key in self.best.decisions if key.endswith(f".{OUT}")}
        return [name for name in self.best.participants if name not in out]

    def _try(self, decisions: Answers, *, fewer: bool = True) -> bool:
        self._tries += 1
        if self._tries > _TRIES_MAX:
            return False
        try:
            simulate(self._scenario, self.best.seed, schedule=decisions, **self._options)
        except SimulationError as failure:
            if failure.signature != self.best.signature:
                return False
            if not fewer and not any(key.endswith(f".{OUT}") for key in failure.decisions):
                return False
            self.best = failure
            return True
        return False
