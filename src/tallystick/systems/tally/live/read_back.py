"""Read records of an open log back from its files.

In: an open `TallyLog` and the records wanted. Out: their rows, in log order. Only what is written
is read; callers flush first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tallystick.errors import CorruptLogError
from tallystick.storage.files import Bytes
from tallystick.systems.tally.columns.splits import seek
from tallystick.systems.tally.format.columns import Row
from tallystick.systems.tally.format.layout import GroupHeader
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.read.files import read_folder
from tallystick.systems.tally.read.records import rows_of
from tallystick.systems.tally.read.scan import Scan, Step
from tallystick.systems.tally.read.state import OpenTransaction


def groups_from(
    log: TallyLog, *, lsn: int = 0, time_us: int | None = None, until: int | None = None
) -> Iterator[tuple[GroupHeader, Bytes]]:
    """Yield header and stored payload of groups from an LSN or a time on, below ``until``.

    ``time_us`` is in microseconds; ``until`` is an LSN and defaults to what is durable now.

    Raises:
        CorruptLogError: a group is damaged.
    """
    end = log.durable_lsn + 1 if until is None else until
    catalog, access = read_folder(log.fs, log.path)
    start = seek(catalog, access, lsn=lsn, time_us=time_us)
    for step in Scan(catalog, access, start).steps():
        header = step.place.header
        if step.place.lsn >= end:
            return
        if header is None or not step.place.case.whole:
            raise _damage(step)
        yield header, step.view.payload(header)


def rows_from(log: TallyLog, *, lsn: int = 0, until: int | None = None) -> Iterator[Row]:
    """Yield every row from ``lsn`` on, below ``until``, which defaults to what is durable."""
    for header, stored in groups_from(log, lsn=lsn, until=until):
        for row in rows_of(stored, header, log.key):
            if until is not None and row.lsn >= until:
                return
            if row.lsn >= lsn:
                yield row


def live_rows(log: TallyLog, wanted: Collection[int]) -> Iterator[Row]:
    """Yield the rows with these LSNs."""
    if not wanted:
        return
    for row in rows_from(log, lsn=min(wanted), until=max(wanted) + 1):
        if row.lsn in wanted:
            yield row


def open_elements(log: TallyLog, transaction: OpenTransaction) -> list[Row]:
    """Return the rows of a transaction that has not ended."""
    return list(live_rows(log, {one.lsn for one in transaction.elements}))


def _damage(step: Step) -> CorruptLogError:
    return CorruptLogError(
        f"a group that was written cannot be read back: {step.place.reason}",
        file=step.file.path,
        offset=step.place.offset,
        advice="Close the log and look at it with `tallystick explain`",
    )
