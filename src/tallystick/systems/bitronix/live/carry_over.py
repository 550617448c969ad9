"""What a change of files carries over: open decisions, and heuristic outcomes not settled.

In: records in log order. Out: the records to copy. The original copies only the decisions, and
so forgets heuristic outcomes; it ignores our copies, as any UNKNOWN that closes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tallystick.systems.bitronix.format.layout import (
    COMMITTING,
    LENGTH_OUTSIDE,
    NO_TRANSACTION,
    UNKNOWN,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.read.open_decisions import OpenDecisions


class CarriedRecords:
    """The open decisions, and the heuristic outcomes that no NO_TRANSACTION has settled.

    ``size`` is the size of the copies of all of them, in bytes.
    """

    def __init__(self) -> None:
        self._open = OpenDecisions()
        self._decisions: dict[bytes, TransactionLogRecord] = {}
        self._heuristics: dict[bytes, TransactionLogRecord] = {}
        self.size = 0

    def apply(self, record: TransactionLogRecord) -> None:
        """Apply the next record."""
        before = self._decisions.get(record.gtrid)
        self._open.apply(record)
        names = self._open.get(record.gtrid)
        if names is None:
            self._decisions.pop(record.gtrid, None)
        elif record.status == COMMITTING:
            self._decisions[record.gtrid] = record
        elif before is not None and names != before.unique_names:
            self._decisions[record.gtrid] = replace(before, unique_names=names)
        self.size += _copy_size(self._decisions.get(record.gtrid)) - _copy_size(before)
        if record.status in (UNKNOWN, NO_TRANSACTION):
            self._apply_outcome(record)

    def _apply_outcome(self, record: TransactionLogRecord) -> None:
        before = self._heuristics.pop(record.gtrid, None)
        after = None if record.status == NO_TRANSACTION else _joined(before, record)
        if after is not None:
            self._heuristics[record.gtrid] = after
        self.size += _copy_size(after) - _copy_size(before)

    @property
    def decisions(self) -> Mapping[bytes, TransactionLogRecord]:
        """The COMMITTING record of each open decision, with the names left."""
        return self._decisions

    @property
    def heuristics(self) -> Mapping[bytes, TransactionLogRecord]:
        """The UNKNOWN record of each gtrid whose outcome is not settled."""
        return self._heuristics

    def size_with_max(self, record: TransactionLogRecord) -> int:
        """Return a quick upper bound of `size_with`: the record, and a copy with all it adds."""
        return self.size + 2 * record.size

    def size_with(self, record: TransactionLogRecord) -> int:
        """Return the bytes of ``record`` and of all copies that precede it in a new file."""
        alone = CarriedRecords()
        for kept in self._kept(record.gtrid):
            alone.apply(kept)
        alone.apply(record)
        if record.status == COMMITTING:
            alone.size -= record.size
        return self.size - self._size_of(record.gtrid) + alone.size + record.size

    def records(self) -> list[TransactionLogRecord]:
        """Return all records by gtrid, outcomes first: after a decision one would close it."""
        both = self._heuristics, self._decisions
        return [found[gtrid] for found in both for gtrid in sorted(found)]

    def copies(self, time: int, sequence: int, but: bytes | None = None) -> list[bytes]:
        """Return the records to copy, encoded, without the decision of gtrid ``but``.

        Records that no later record has changed are copied as they were; the others are made anew
        with this time and number.
        """
        copies = []
        for one in self.records():
            if one.status == COMMITTING and one.gtrid == but:
                continue
            # Its names are not those that it was written with: length and CRC no longer fit.
            if not (one.is_exact and one.is_crc32_correct()):
                one = TransactionLogRecord.create(
                    one.status, one.gtrid, one.unique_names, time, sequence
                )
            copies.append(one.encode())
        return copies

    def same_as(self, other: CarriedRecords) -> bool:
        """Return whether both hold the same names for the same gtrids."""
        return self._summary() == other._summary()

    def _summary(self) -> tuple[dict[bytes, tuple[str, ...]], dict[bytes, tuple[str, ...]]]:
        heuristics = {gtrid: one.unique_names for gtrid, one in self._heuristics.items()}
        return self._open, heuristics

    def _kept(self, gtrid: bytes) -> list[TransactionLogRecord]:
        both = (self._heuristics.get(gtrid), self._decisions.get(gtrid))
        return [one for one in both if one is not None]

    def _size_of(self, gtrid: bytes) -> int:
        return sum(_copy_size(one) for one in self._kept(gtrid))


def _joined(
    known: TransactionLogRecord | None, record: TransactionLogRecord
) -> TransactionLogRecord:
    """Return the record with the names of both."""
    if known is None:
        return record
    names = tuple(sorted({*known.unique_names, *record.unique_names}))
    return replace(record, unique_names=names)


def _copy_size(record: TransactionLogRecord | None) -> int:
    """Return the bytes of the record's copy; 0 for None."""
    return 0 if record is None else record.exact_length + LENGTH_OUTSIDE
