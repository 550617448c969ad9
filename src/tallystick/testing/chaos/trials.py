"""Trials: one transaction, one fault at one step, and the proof that nothing is left torn.

In: a `Scenario` and faults. Out: a `ChaosReport`, or an `AssertionError` that names the fault and
the step. A trial checks:

* whatever recovery calls clean while the fault lasts is whole, not torn;
* once the fault is mended, recovery becomes clean;
* the transaction is then in every database or in none; in every one if it was reported committed,
  in none if it was reported rolled back;
* and the transaction stays so, which is looked at again after all trials.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tallystick.callables import require_plain_calls
from tallystick.testing.chaos.faults import (
    DISK_FULL,
    FORK,
    GO,
    KILL,
    STOP,
    Fault,
    cut,
    half_open,
    refused,
)
from tallystick.testing.chaos.process import Ended, Worker, succeeds
from tallystick.testing.proxy import TcpProxy


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a trial does, over databases of the user.

    ``work`` and ``recover`` run in processes of their own, forked from this one, so they open and
    close their transaction manager themselves; nothing of it may be open here.

    Args:
        work: does one global transaction: gets the number of the trial (1 first, for each
            `Chaos`), by which its rows are told apart, and a function for
            ``TransactionManager(on_step=…)``.
        recover: opens the manager, recovers, and returns whether the report was clean.
        look: gets the number of a trial; returns True if its rows are in every database, False if
            in none, and raises `AssertionError` if they are torn. Connects directly.
        proxies: by name of a database, the one through which ``work`` and ``recover`` reach it.
        faults: more faults, such as `Away` for a server that is killed.
        limit: seconds without a step after which the work counts as hung, and is killed.
        settle: seconds until recovery must be clean.
    """

    work: Callable[[int, Callable[[str], None]], object]
    recover: Callable[[], bool]
    look: Callable[[int], bool]
    proxies: Mapping[str, TcpProxy] = field(default_factory=dict)
    faults: Sequence[Fault] = ()
    limit: float = 20.0
    settle: float = 60.0

    def __post_init__(self) -> None:
        require_plain_calls(self, ("work", "recover", "look"), "a scenario")

    def every_fault(self) -> list[Fault]:
        """Return the faults of the process, of each proxy, and those of ``faults``."""
        found = [KILL, STOP, FORK, DISK_FULL, *self.faults]
        for name, proxy in self.proxies.items():
            found += [half_open(name, proxy), cut(name, proxy)]
            found += [refused(name, proxy, verb) for verb in (b"PREPARE", b"COMMIT")]
        return found


@dataclass(slots=True)
class ChaosReport:
    """What the trials found.

    Attributes:
        steps: the steps of the work without a fault, in order.
        trials: the number of trials.
        ended: how often the work ended how.
        clean_early: how often recovery was clean, rightly, while the fault lasted.
    """

    steps: list[str] = field(default_factory=list)
    trials: int = 0
    ended: Counter[Ended] = field(default_factory=Counter)
    clean_early: int = 0

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {ended.value}" for ended, count in self.ended.most_common())
        return f"{self.trials} trials at {len(self.steps)} steps: {ends}; 0 torn, 0 falsely clean"


class Chaos:
    """Runs trials.

    Args:
        faults: names of those to try; empty for all.
        step: the number of the only step to try.
        sample: the number of trials, chosen at random; None for all.
        seed: of the choice.
    """

    def __init__(
        self,
        *,
        faults: Collection[str] = (),
        step: int | None = None,
        sample: int | None = None,
        seed: int = 0,
    ) -> None:
        self.faults = frozenset(faults)
        self.step = step
        self.sample = sample
        self.seed = seed
        self._numbers = itertools.count(1)

    def run(self, scenario: Scenario, *, sample: int | None = None) -> ChaosReport:
        """Try each fault at each step.

        Args:
            scenario: what to do.
            sample: as for the class, if that has none.

        Raises:
            AssertionError: a transaction is torn, recovery called clean what was not, or recovery
                came to no end.
        """
        report, found = ChaosReport(), dict[int, bool]()
        self._try(scenario, report, found, None, -1)
        wanted = [
            (fault, at)
            for fault in self._chosen(scenario)
            for at in range(len(report.steps))
            if self.step in (None, at)
        ]
        size = self.sample if sample is None or self.sample is not None else sample
        if size is not None:
            chance = random.Random(self.seed)
            wanted = [wanted[chance.randrange(len(wanted))] for _ in range(size)]
        for fault, at in wanted:
            self._try(scenario, report, found, fault, at)
        for number, there in found.items():
            assert scenario.look(number) is there, f"trial {number} changed after its end"
        return report

    def _chosen(self, scenario: Scenario) -> list[Fault]:
        known = {fault.name: fault for fault in scenario.every_fault()}
        unknown = self.faults - set(known)
        if unknown:
            raise ValueError(f"no such fault: {sorted(unknown)}; there are {sorted(known)}")
        return [fault for name, fault in known.items() if not self.faults or name in self.faults]

    def _try(
        self,
        scenario: Scenario,
        report: ChaosReport,
        found: dict[int, bool],
        fault: Fault | None,
        at: int,
    ) -> None:
        number = next(self._numbers)
        steps, worker = _work(scenario, number, fault, at)
        if fault is None:
            assert worker.ended is Ended.COMMITTED, f"without a fault: {worker.error}"
            report.steps = steps
        where = "without a fault" if fault is None else _where(fault, at, steps, report, worker)
        try:
            try:
                report.clean_early += fault is not None and _clean_early(scenario, number)
            finally:
                if fault is not None:
                    fault.mend()
            _settle(scenario)
            found[number] = there = scenario.look(number)
        except AssertionError as error:
            raise AssertionError(f"{error}; {where}") from error
        if worker.ended is Ended.COMMITTED:
            assert there, f"reported committed, and it is not there; {where}"
        if worker.ended is Ended.ROLLED_BACK:
            assert not there, f"reported rolled back, and it is there; {where}"
        report.trials += 1
        report.ended[worker.ended] += 1


def _work(
    scenario: Scenario, number: int, fault: Fault | None, at: int
) -> tuple[list[str], Worker]:
    """Do the work in a process, with the fault at the step of number ``at``."""
    worker = Worker(lambda on_step: scenario.work(number, on_step), scenario.limit)
    steps: list[str] = []
    for step in worker.steps():
        steps.append(step)
        struck = fault is not None and len(steps) - 1 == at
        worker.go_on(fault.strike(worker) if fault is not None and struck else GO)
    worker.close()
    return steps, worker


def _where(fault: Fault, at: int, steps: Sequence[str], report: ChaosReport, worker: Worker) -> str:
    name = (steps if at < len(steps) else report.steps)[at]
    return (
        f"fault {fault.name!r} at step {at} ({name}); the work {worker.ended.value} "
        f"{worker.error}; again: --chaos-fault '{fault.name}' --chaos-step {at}"
    )


def _clean_early(scenario: Scenario, number: int) -> bool:
    """Recover while the fault lasts; what is called clean must be whole."""
    if not succeeds(scenario.recover, scenario.limit):
        return False
    try:
        scenario.look(number)
    except AssertionError as error:
        raise AssertionError(f"recovery called this clean: {error}") from error
    return True


def _settle(scenario: Scenario) -> None:
    deadline = time.monotonic() + scenario.settle
    while not succeeds(scenario.recover, scenario.limit):
        assert time.monotonic() < deadline, "recovery has not become clean"
        time.sleep(0.05)
