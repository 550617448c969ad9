"""The transactions of a native log: all of them, or their number by state and those in doubt.

In: the places of the log. Out: `Transaction` objects, for which memory grows with their number; or
`States`, for which it grows with the open ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from operator import itemgetter

from tallystick.records import Record, State, Transaction
from tallystick.systems.tally.read.records import has_work, step_records
from tallystick.systems.tally.read.scan import Step
from tallystick.systems.tally.read.state import Incomplete, numbers_of
from tallystick.systems.tally.read.transactions import TransactionTable
from tallystick.systems.tally.runs.pieces import chunk_of

CLOSED_MAX = 1 << 16
"""Decisions and entries that are kept, the latest ones of which nothing is open: more records may
follow."""


def transactions_of(
    log: str, steps: Iterable[Step], key: bytes | None, incomplete: Incomplete
) -> Iterator[Transaction]:
    """Return one per transaction in order of first appearance; a number used again is one more.

    Groups that hold changes outside of transactions only are not decoded.
    """
    found: list[Transaction] = []
    begun: list[tuple[int, Transaction]] = []
    table = TransactionTable(log, incomplete, lambda lsn, one: begun.append((lsn, one)))
    for step in steps:
        chunk, path = chunk_of(step.place), step.file.path
        if chunk is None:
            table.take_all(records_with_work(step, key))
        else:
            work = chunk.sorted(step.view.header.number, table.numbers | numbers_of(incomplete))
            table.take_all(work.other_records(path))
            begun += work.transactions(log, path)
        # By first records: those of a chunk come from columns and from the table, each in its own
        # order.
        found += (one for _, one in sorted(begun, key=itemgetter(0)))
        begun.clear()
    return iter(found)


def records_with_work(step: Step, key: bytes | None) -> Iterable[Record]:
    """Return the records of a step without a chunk that may be more than loose changes."""
    return step_records(step, key) if has_work(step) else ()


class States:
    """How many transactions are in which state; they are forgotten after they have ended.

    Args:
        log: the path of the log.
        incomplete: transactions that end with records missing, as they are found.
    """

    def __init__(self, log: str, incomplete: Incomplete) -> None:
        self._ended: Counter[State] = Counter()
        self._table = TransactionTable(log, incomplete, lambda _lsn, _one: None)

    @property
    def open(self) -> Set[int]:
        """The numbers of the journal transactions that are open."""
        return self._table.numbers

    def commit(self, count: int) -> None:
        """Count transactions of a chunk that are whole, and in no record but those of the chunk."""
        if count:
            self._ended[State.COMMITTED] += count

    def take(self, records: Iterable[Record]) -> None:
        """Apply records in log order."""
        self._ended.update(one.state for one in self._table.take_all(records))
        self._ended.update(one.state for one in self._table.forget_closed(CLOSED_MAX))

    def by_state(self) -> dict[str, int]:
        """Return how many transactions are in each state by now."""
        found = self._ended + Counter(one.state for one in self._table.kept)
        return {state.value: count for state, count in found.items()}

    def in_doubt(self) -> list[str]:
        """Return the keys of those that are prepared."""
        return [one.key for one in self._table.kept if one.state is State.PREPARED]
