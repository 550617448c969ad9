"""The decisions that are not closed: the resources for which each of them is still open.

In: records in file order. Out: what a coordinator's recovery would act on. The engine's verdict,
the strict verdict and the live log use the same rules.
"""

from __future__ import annotations

from tallystick.systems.bitronix.format.layout import CLOSING, COMMITTING
from tallystick.systems.bitronix.format.record import TransactionLogRecord


class OpenDecisions(dict[bytes, tuple[str, ...]]):
    """The names that are left of each open decision, by gtrid, after the records so far.

    COMMITTING opens or replaces a decision; COMMITTED, ROLLEDBACK and UNKNOWN remove their names
    from it. A closing record without names closes only a COMMITTING without names, and one whose
    gtrid is not open has no effect.
    """

    def apply(self, record: TransactionLogRecord) -> None:
        """Apply the next record."""
        self.decide(record.status, record.gtrid, record.unique_names)

    def decide(self, status: int, gtrid: bytes, names: tuple[str, ...]) -> None:
        """Apply a record of this status, gtrid and names."""
        if status == COMMITTING:
            self[gtrid] = names
        elif status in CLOSING and gtrid in self:
            left = tuple(name for name in self.pop(gtrid) if name not in names)
            if left:
                self[gtrid] = left
