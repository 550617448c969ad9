"""The coordinator's log: decisions, outcomes that are not forced, and what operators settle."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random

from tallystick.errors import TallystickError
from tallystick.records import State
from tallystick.roles import DecisionOutcome
from tallystick.storage.files import FileSystem
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.decision_log import TallyDecisionLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing.simulate import Simulation

NAMES = ("a", "b")
Open = frozenset[tuple[bytes, frozenset[str]]]
States = tuple[Open, Open]
"""Open decisions and heuristic outcomes of one writer."""


class Writer:
    """What one coordinator thread has recorded; records of one writer stay in order.

    ``history`` has its state after each record, ``durable`` the place of the last one that was
    acknowledged: everything before it is durable too.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0
        self.open: dict[bytes, frozenset[str]] = {}
        self.heuristic: dict[bytes, frozenset[str]] = {}
        self.history: list[States] = [self.state()]
        self.durable = 0

    def state(self) -> States:
        """Return the state as of now."""
        return frozenset(self.open.items()), frozenset(self.heuristic.items())

    def recorded(self) -> int:
        """Note the state after one more record; return its place."""
        self.history.append(self.state())
        return len(self.history) - 1

    def check(self, opened: dict[bytes, frozenset[str]], held: dict[bytes, frozenset[str]]) -> None:
        """Compare with what a recovery has found, and go on from there."""
        mine = [
            {gtrid: names for gtrid, names in found.items() if gtrid[0] == self.number}
            for found in (opened, held)
        ]
        found = frozenset(mine[0].items()), frozenset(mine[1].items())
        possible = self.history[self.durable :]
        assert found in possible, f"{found} is none of {possible}"
        self.open, self.heuristic = mine
        self.history, self.durable = [found], 0


def decisions(sim: Simulation) -> None:
    """Two lives of a decision log, with faults and crashes in both."""
    random = sim.random
    settings = Settings(
        segment_size=16 << 10,
        preallocate=random.random() < 0.3,
        idle_mark_s=None,
        group_bytes=random.choice((100, 1 << 20)),
    )
    writers = [Writer(number) for number in range(1, random.randint(2, 4))]
    large = random.random() < 0.3

    def life(fs: FileSystem) -> None:
        with contextlib.suppress(TallystickError):
            log = TallyDecisionLog(TallyLog("/log", settings=settings, fs=fs))
            workers = [
                sim.spawn(_works, log, writer, large, Random(random.getrandbits(20)))
                for writer in writers
            ]
            for worker in workers:
                worker.join()
            log.close()

    for _ in range(2):
        sim.until_crash(life)
        log = TallyDecisionLog(TallyLog("/log", settings=settings, fs=sim.disk))
        opened = {gtrid: one.resources for gtrid, one in log.open_decisions().items()}
        held = dict(log.heuristics())
        log.close()
        for writer in writers:
            writer.check(opened, held)


def _works(log: TallyDecisionLog, writer: Writer, large: bool, random: Random) -> None:
    with contextlib.suppress(TallystickError):
        for _ in range(random.randint(1, 4)):
            random.choice(KINDS)(log, writer, large)


def _decide(log: TallyDecisionLog, writer: Writer, large: bool) -> None:
    gtrid = bytes([writer.number, writer.count])
    writer.count += 1
    names = (*NAMES, "n" * 4000) if large else NAMES
    log.note(State.ACTIVE, gtrid, names)
    writer.open[gtrid] = frozenset(names)
    place = writer.recorded()
    log.decide(gtrid, names).wait()
    writer.durable = place


def _finish(log: TallyDecisionLog, writer: Writer, _: bool) -> None:
    for gtrid, names in list(writer.open.items())[:1]:
        some = frozenset(sorted(names)[:1]) if len(names) > 2 else names
        del writer.open[gtrid]
        if names - some:
            writer.open[gtrid] = names - some
        writer.recorded()
        log.finish(gtrid, some, DecisionOutcome.COMMITTED)


def _fail(log: TallyDecisionLog, writer: Writer, _: bool) -> None:
    for gtrid, names in list(writer.open.items())[:1]:
        del writer.open[gtrid]
        writer.heuristic[gtrid] = names
        writer.recorded()
        log.finish(gtrid, names, DecisionOutcome.HEURISTIC)


def _settle(log: TallyDecisionLog, writer: Writer, _: bool) -> None:
    for gtrid in list(writer.heuristic)[:1]:
        del writer.heuristic[gtrid]
        place = writer.recorded()
        log.settle(gtrid).wait()
        writer.durable = place


KINDS: tuple[Callable[[TallyDecisionLog, Writer, bool], None], ...] = (
    _decide, _decide, _finish, _fail, _settle,
)  # fmt: skip
