"""The decisions that are not closed: a map from gtrid to the COMMITTING record that is kept.

In: records in file order. Out: the records that a coordinator's recovery would act on. The
engine's verdict, the strict verdict and the live log use the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Self

from tallystick.systems.bitronix.format.layout import CLOSING, COMMITTING
from tallystick.systems.bitronix.format.record import TransactionLogRecord

Rebuild = Callable[[TransactionLogRecord, tuple[str, ...]], TransactionLogRecord]


def _with_names(record: TransactionLogRecord, names: tuple[str, ...]) -> TransactionLogRecord:
    return replace(record, unique_names=names)


class DanglingSet:
    """The open decisions after the records applied so far.

    COMMITTING opens or replaces a decision; COMMITTED, ROLLEDBACK and UNKNOWN remove their names
    from it. A closing record without names closes only a COMMITTING without names, and one whose
    gtrid is not open has no effect. ``rebuild`` makes the record that is kept for the names left of
    a partly closed one (a live log gives it a new time and number).
    """

    def __init__(self, rebuild: Rebuild = _with_names) -> None:
        self._open: dict[bytes, TransactionLogRecord] = {}
        self._rebuild = rebuild

    @classmethod
    def of(cls, records: Iterable[TransactionLogRecord]) -> Self:
        """Return the set that has kept these records."""
        found = cls()
        found._open = {record.gtrid: record for record in records}
        return found

    def apply(self, record: TransactionLogRecord) -> None:
        """Apply the next record."""
        if record.status == COMMITTING:
            self._open[record.gtrid] = record
        elif record.status in CLOSING and record.gtrid in self._open:
            self._close(record)

    def _close(self, record: TransactionLogRecord) -> None:
        kept = self._open[record.gtrid]
        if kept.unique_names == record.unique_names:
            del self._open[record.gtrid]
            return
        left = tuple(name for name in kept.unique_names if name not in record.unique_names)
        if not left:
            del self._open[record.gtrid]
        else:
            self._open[record.gtrid] = self._rebuild(kept, left)

    def get(self, gtrid: bytes) -> TransactionLogRecord | None:
        """Return the kept record of that gtrid, with the names left."""
        return self._open.get(gtrid)

    def records(self) -> tuple[TransactionLogRecord, ...]:
        """Return the kept records by ascending gtrid."""
        return tuple(self._open[gtrid] for gtrid in sorted(self._open))

    def __len__(self) -> int:
        return len(self._open)
