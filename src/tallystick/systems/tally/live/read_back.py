"""Read records of an open log back from its files.

In: an open log and the records wanted. Out: their rows, in log order. Only what is written
is read; callers flush first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.storage.files import Bytes, FileSystem
from tallystick.storage.source import ByteSource, with_zeros
from tallystick.systems.tally.columns.splits import seek
from tallystick.systems.tally.format.columns import Row
from tallystick.systems.tally.format.layout import GroupHeader
from tallystick.systems.tally.read.files import (
    Catalog,
    FileAccess,
    SegmentFile,
    readable_folder,
)
from tallystick.systems.tally.read.records import rows_of
from tallystick.systems.tally.read.scan import Scan, Step
from tallystick.systems.tally.read.walk import Expected


class OpenLog(Protocol):
    """What is needed of an open log to read its files."""

    path: str
    key: bytes | None

    @property
    def fs(self) -> FileSystem:
        """The file system that holds the log's folder."""
        ...

    @property
    def durable_lsn(self) -> int:
        """Every record up to this LSN is durable."""
        ...

    @property
    def first_segment(self) -> int:
        """The number of the first segment that is kept."""
        ...

    @property
    def written(self) -> tuple[int, int] | None:
        """The number of the segment that is written to, and the offset up to which it is.

        None if another process may write it.
        """
        ...

    def hold(self, number: int) -> AbstractContextManager[None]:
        """Keep the files of this segment and of all later ones while the context is open."""
        ...


def groups_from(
    log: OpenLog,
    *,
    lsn: int = 0,
    time_us: int | None = None,
    until: int | None = None,
    needed: bool = False,
) -> Iterator[tuple[GroupHeader, Bytes]]:
    """Yield header and stored payload of groups from an LSN or a time on, below ``until``.

    ``time_us`` is in microseconds; ``until`` is an LSN and defaults to what is durable now. What a
    checkpoint has given up is left out, unless the record ``lsn`` itself is ``needed``.

    Raises:
        CorruptLogError: a group is damaged.
        LogUnreadableError: the disk does not give back a part of what is durable.
    """
    durable = log.durable_lsn
    end = durable + 1 if until is None else until
    catalog, access = readable_folder(log.fs, log.path)
    # As of the same moment as what the catalog shows: a checkpoint may have raised it meanwhile.
    first = 0 if needed or catalog.control is None else catalog.control.first_segment
    start = seek(catalog, access, lsn=lsn, time_us=time_us)
    scan = Scan(catalog, _of_what_is_written(log, catalog, access), start)
    due = None if start is None else _first_lsn(start, first, lsn=lsn, time_us=time_us)
    for step in scan.steps():
        header, at = step.place.header, step.place.lsn
        if due is None or at > due:
            break
        if at >= end:
            return
        if header is None or not step.place.case.whole:
            raise _damage(step)
        yield header, step.view.payload(header)
        due = at + header.count
    if due is None or due < min(end, durable + 1):
        raise _unread(log, scan, due)


def _of_what_is_written(log: OpenLog, catalog: Catalog, access: FileAccess) -> FileAccess:
    """Return access that reads nothing of what the last segment has preallocated."""
    number, end = log.written or (0, 0)
    last = catalog.live_segment(number)
    if last is None:
        return access

    def opened(path: str) -> ByteSource:
        if path != last.path or last.header is None:
            return access.open(path)
        source = with_zeros(path, access.part(path, 0, end), 0, last.header.size)
        source.zeros_from = end
        return source

    return replace(access, open=opened)


def _first_lsn(
    start: tuple[SegmentFile, Expected | None], first: int, *, lsn: int, time_us: int | None
) -> int:
    """Return the highest LSN that a scan from this place may begin with.

    Where its segment is not the first one of the log, what is wanted must begin in it.
    """
    file, place = start
    assert file.header is not None
    begins, wanted = file.header.first_lsn, lsn
    if time_us is not None:
        begins, wanted = file.header.created_us, time_us
    if file.header.number > first and begins > wanted:
        return lsn
    return place.lsn if place is not None else file.header.first_lsn


def rows_from(
    log: OpenLog, *, lsn: int = 0, until: int | None = None, needed: bool = False
) -> Iterator[Row]:
    """Yield every row from ``lsn`` on, below ``until``; see `groups_from`."""
    for header, stored in groups_from(log, lsn=lsn, until=until, needed=needed):
        for row in rows_of(stored, header, log.key):
            if until is not None and row.lsn >= until:
                return
            if row.lsn >= lsn:
                yield row


def live_rows(log: OpenLog, wanted: Collection[int]) -> Iterator[Row]:
    """Yield the rows with these LSNs.

    Raises:
        CorruptLogError: a group is damaged.
        LogUnreadableError: the disk does not give back all of them.
    """
    if not wanted:
        return
    left = len(wanted)
    with log.hold(log.first_segment):
        for row in rows_from(log, lsn=min(wanted), until=max(wanted) + 1, needed=True):
            if row.lsn in wanted:
                left -= 1
                yield row
    if left:
        raise _unread(log, None, None)


def _damage(step: Step) -> CorruptLogError:
    return CorruptLogError(
        f"a group that was written cannot be read back: {step.place.reason}",
        file=step.file.path,
        offset=step.place.offset,
        advice="Close the log and look at it with `tallystick explain`",
    )


def _unread(log: OpenLog, scan: Scan | None, due: int | None) -> LogUnreadableError:
    unreadable = [] if scan is None else [one for one in scan.findings if one.code == "unreadable"]
    return LogUnreadableError(
        "; ".join(one.message for one in unreadable) or "records that are durable cannot be read",
        file=log.path,
        expected="every record up to the durable end" if due is None else f"record {due}",
        advice="Look at the disk; what was read before this is complete",
    )
