"""Large estates by our own writers, for the benchmarks of the pipeline.

In: sizes and how often a transaction is left at a fault. Out: Bitronix coordinators over native
journals, each filled up with plain records or with local transactions.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tallystick.records import State, Xid
from tallystick.roles import DecisionOutcome
from tallystick.systems.bitronix.live.role import BitronixDecisionLog
from tallystick.systems.tally.live.roles.journal import TallyJournal, open_journal
from tallystick.systems.tally.live.settings import Settings

FORMAT_ID = 0x42746E78
BODY = bytes(range(200))
FILL_ROUND = 20_000
FAULTS = ("no-decision", "open-decision", "lost-commit")


@dataclass(frozen=True, slots=True)
class Estate:
    """How large, and how often a transaction is left at a fault (0: never). ``mib`` is the size
    of the records that fill the journals up: plain ones, or with ``rows`` committed by so many."""

    coordinators: int
    resources: int
    transactions: int
    fault_every: int
    mib: int
    rows: int = 0

    def write(self, root: Path) -> None:
        """Write it below ``root``."""
        fill = (self.mib << 20) // (self.coordinators * self.resources * len(BODY))
        for number in range(self.coordinators):
            self._write_one(root / f"site-{number}", f"site-{number}", fill)

    def _write_one(self, home: Path, owner: str, fill: int) -> None:
        home.mkdir(parents=True)
        names = [f"jdbc/{owner}-{number}" for number in range(self.resources)]
        with ExitStack() as opened:
            decisions = BitronixDecisionLog(
                home / "coordinator", forced_write_enabled=False, max_log_size=64 << 20
            )
            opened.callback(decisions.close)
            journals = {}
            for number, name in enumerate(names):
                settings = Settings(spares=0, preallocate=False)
                journal = open_journal(str(home / f"resource-{number}"), settings=settings)
                opened.callback(journal.close)
                journals[name] = journal
            for number in range(1, self.transactions + 1):
                transfer(decisions, journals, number, owner.encode(), self._fault(number))
            for journal in journals.values():
                for begin in range(0, fill, FILL_ROUND):
                    count = min(FILL_ROUND, fill - begin)
                    if self.rows:
                        commit_rows(journal, self.transactions + 1 + begin, count, self.rows)
                    else:
                        journal.append_many([BODY] * count)

    def _fault(self, number: int) -> str | None:
        if not self.fault_every or number % self.fault_every:
            return None
        return FAULTS[number // self.fault_every % len(FAULTS)]


def commit_rows(journal: TallyJournal, first: int, count: int, rows: int) -> None:
    """Commit ``count`` records in transactions of ``rows`` each; the first one is ``first``."""
    tickets = []
    for number in range(count // rows):
        for row in range(rows):
            journal.add_in(first + number, number * rows + row, BODY)
        tickets.append(journal.commit(first + number))
    for ticket in tickets:
        ticket.wait()


def transfer(
    decisions: BitronixDecisionLog,
    journals: dict[str, TallyJournal],
    number: int,
    owner: bytes,
    fault: str | None,
) -> None:
    """One global transaction over all resources, up to the end or to its fault."""
    clock = time.time_ns() // 1_000_000
    gtrid = owner + clock.to_bytes(8, "big") + number.to_bytes(4, "big")
    decisions.note(State.ACTIVE, gtrid, set())
    for name, journal in journals.items():
        journal.add_in(number, number, BODY)
        journal.prepare(number, xid=Xid(FORMAT_ID, gtrid, gtrid + name.encode())).wait()
    if fault == "no-decision":
        return
    decisions.decide(gtrid, set(journals)).wait()
    if fault == "open-decision":
        return
    kept = list(journals.values())[fault == "lost-commit" :]
    for journal in kept:
        journal.commit(number).wait()
    decisions.finish(gtrid, set(journals), DecisionOutcome.COMMITTED)
