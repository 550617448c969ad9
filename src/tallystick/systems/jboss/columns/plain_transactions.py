"""The transactions of a plain journal, without an object per record.

In: the evidence about a plain journal. Out: `Transaction`s in the order of their ends, then those
that are left: what `tallystick.systems.jboss.read.transactions.transactions` gives. The records
are read once more for them; open transactions, and the numbers of all, are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tallystick.records import State, Transaction, Xid
from tallystick.systems.jboss.columns.fields import Fields, fields_of
from tallystick.systems.jboss.columns.plain_files import file_rows, valid_rows
from tallystick.systems.jboss.format.bodies import xid
from tallystick.systems.jboss.format.layout import (
    CHECK_SIZE,
    COMMIT,
    I4,
    I8,
    IN_TRANSACTION,
    PREPARE,
    ROLLBACK,
    SYSTEM_NAME,
    Shape,
)
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.transactions import NOTHING_FOUND, key_of, unended
from tallystick.systems.jboss.verdict.differences import Evidence

_ENDS = {COMMIT: (State.COMMITTED, "COMMIT"), ROLLBACK: (State.ROLLED_BACK, "ROLLBACK")}


def plain_transactions(evidence: Evidence) -> Iterator[Transaction]:
    """Yield the transactions of a plain journal."""
    seen: Counter[int] = Counter()
    replay = Transactions(evidence.log, evidence.journal.ordered(), seen)
    for order, file in enumerate(evidence.journal.ordered()):
        yield from replay.ended(order, _transactional(evidence.journal, file))
    yield from unended(evidence.log, evidence.analysis, seen)


def _transactional(journal: JournalFiles, file: JournalFile) -> Iterator[tuple[Fields, Xid | None]]:
    """Yield the records of transactions, and the Xid of each prepare."""
    shape, data = journal.shape(file), file.data()
    rows = valid_rows(file_rows(file, shape))
    wanted = np.zeros(256, np.bool_)
    wanted[list(IN_TRANSACTION)] = True
    rows = rows[wanted[np.frombuffer(data, np.uint8)[rows[:, 0]]]]
    return with_xids(shape, data, fields_of(shape, data, rows))


def with_xids(
    shape: Shape, data: memoryview, records: Iterable[Fields]
) -> Iterator[tuple[Fields, Xid | None]]:
    """Yield the records, and the Xid of each prepare."""
    extra = shape.fields_at + I8.size + 2 * I4.size
    for one in records:
        found = (
            xid(bytes(data[one[1] + extra : one[2] - CHECK_SIZE])) if one[0] == PREPARE else None
        )
        yield one, found


@dataclass(slots=True)
class _Open:
    """An open transaction: number and bytes of its elements, the files of these, its prepare."""

    count: int = 0
    size: int = 0
    files: list[int] = field(default_factory=list)
    prepared: tuple[int, int, Xid | None] | None = None
    """Order of the file, size of the record, Xid."""


class Transactions:
    """Follows the records of transactions."""

    def __init__(self, log: str, files: list[JournalFile], seen: Counter[int]) -> None:
        self._log = log
        self._paths = [file.path for file in files]
        self._seen = seen
        self._open: dict[int, _Open] = {}

    def ended(
        self, order: int, records: Iterable[tuple[Fields, Xid | None]]
    ) -> Iterator[Transaction]:
        """Yield the transactions that records of the file of that order end."""
        opened = self._open
        for (kind, at, end, number, _, _), found in records:
            if kind in _ENDS:
                yield self._ended(number, opened.pop(number, None), (kind, order, at, end - at))
                continue
            one = opened.get(number)
            if one is None:
                one = opened[number] = _Open()
            if kind == PREPARE:
                one.prepared = order, end - at, found
                continue
            one.count += 1
            one.size += end - at
            if not one.files or one.files[-1] != order:
                one.files.append(order)

    def _ended(self, number: int, one: _Open | None, end: tuple[int, int, int, int]) -> Transaction:
        kind, order, at, size = end
        known = one or _Open()
        prepared = known.prepared
        files = {*known.files, order} | ({prepared[0]} if prepared else set())
        branch = prepared[2] if prepared else None
        state, name = _ENDS[kind]
        return Transaction(
            SYSTEM_NAME,
            self._log,
            key_of(self._seen, number),
            state,
            transaction=number,
            format_id=branch.format_id if branch else None,
            gtrid=branch.gtrid if branch else None,
            bqual=branch.bqual if branch else None,
            records=known.count + bool(prepared) + 1,
            bytes=known.size + (prepared[1] if prepared else 0) + size,
            files=tuple(self._paths[each] for each in sorted(files)),
            evidence=(self._paths[order], at),
            evidence_type=name,
            attributes={} if one else {"elements": NOTHING_FOUND},
        )
