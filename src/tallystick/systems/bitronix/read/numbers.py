"""What the numbers of records tell of the process that made them: that it goes on, or has begun.

In: the last records of a file, or all of it. Out: `LastStart`, and whether what follows is numbered
right after it. A process counts the records that it makes, from 1 on, also those that are stored
nowhere; its threads store them out of order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, pairwise

from tallystick.systems.bitronix.format.layout import CLOSING, signed32
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.read.open_decisions import OpenDecisions
from tallystick.systems.bitronix.read.scan import RecordSpan

_APART_MAX = 100
"""How far the numbers of neighbours are apart, besides what threads do to their order: those of the
originals were 1 apart in one thread, up to 31 in 4 threads, 163 in 16 and 697 in 64."""


class LastStart:
    """The last records of a file that one process has made.

    Attributes:
        records: in their order.
        apart_max: how far from them a record is numbered that the process stored next.
    """

    def __init__(self, records: Sequence[TransactionLogRecord]) -> None:
        steps = [(two, _step(one, two)) for one, two in pairwise(records)]
        inside = [abs(step) for two, step in steps if not _is_early(two)]
        self.apart_max = _APART_MAX + 2 * max(inside, default=0)
        starts = (
            at
            for at, (two, step) in enumerate(steps, 1)
            if step < -self.apart_max or (step <= 0 and _is_early(two))
        )
        self.records = records[max(starts, default=0) :]

    def begins_anew(self, record: TransactionLogRecord) -> bool:
        """Return whether a process made this record soon after its start."""
        return abs(record.sequence_number) <= self.apart_max

    def goes_on_with(self, record: TransactionLogRecord) -> bool:
        """Return whether the process may have made this record soon after, or among, the last."""
        return any(abs(_step(one, record)) <= self.apart_max for one in self.records)

    def open_decisions(self) -> OpenDecisions:
        """Return the decisions of the start that are open at its end, as far as the records tell.

        Those without a resource are left out, which 3.0 does not copy.
        """
        found = OpenDecisions()
        for one in self.records:
            if one.unique_names or one.gtrid in found:
                found.apply(one)
        return found


def takes_numbers(spans: Iterable[RecordSpan]) -> bool:
    """Return whether numbers of records may be missing after those of a file with these spans.

    The manager makes a record, and stores it nowhere, for each decision that is closed in part,
    whenever it looks for what is open. What is damaged may be such a file.
    """
    decisions = OpenDecisions()
    for span in islice(spans, 1, None):  # after the header
        if span.record is None or not span.counted:
            return True
        decisions.apply(span.record)
        if span.record.status in CLOSING and span.record.gtrid in decisions:
            return True
    return False


def _is_early(record: TransactionLogRecord) -> bool:
    return 0 <= record.sequence_number <= _APART_MAX


def _step(one: TransactionLogRecord, two: TransactionLogRecord) -> int:
    """Return by how much the number grows; it is one of 32 bits."""
    return signed32(two.sequence_number - one.sequence_number)
