"""Walk a whole log: every group of every live segment, in order.

In: a `Catalog`. Out: `Step` objects, one per place of each segment, and the findings that only the
walk can make. One segment is open at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tallystick.errors import LogUnreadableError
from tallystick.printable import counted
from tallystick.records import Finding
from tallystick.storage.source import ByteSource, with_zeros
from tallystick.systems.tally.codes import fatal
from tallystick.systems.tally.format.headers import SegmentHeader
from tallystick.systems.tally.format.layout import DATA_OFFSET, LSN_FIRST
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.files import Catalog, FileAccess, FileStatus, SegmentFile
from tallystick.systems.tally.read.walk import Expected, Place, ReadRun, SegmentView


@dataclass(frozen=True, slots=True)
class Step:
    """One place of the log.

    ``after_damage`` is true where an earlier place is damaged: recovery would not get here.
    """

    file: SegmentFile
    view: SegmentView
    place: Place
    after_damage: bool


def open_segment(file: SegmentFile, access: FileAccess) -> tuple[ByteSource, SegmentView]:
    """Return the bytes of a segment, and a view of them; the caller closes the source.

    Raises:
        LogUnreadableError: the file cannot be read.
    """
    assert file.header is not None
    source = access.open(file.path)
    return source, view_of(source, file.header, file.durable_lsn)


def open_part(
    file: SegmentFile, access: FileAccess, begin: int, end: int
) -> tuple[ByteSource, SegmentView]:
    """Return a part of a segment at its place, with zeros around it that take no memory.

    Raises:
        LogUnreadableError: the file cannot be read.
    """
    assert file.header is not None
    part = access.part(file.path, begin, end - begin)
    source = with_zeros(file.path, part, begin, file.header.size)
    return source, view_of(source, file.header, file.durable_lsn)


def view_of(source: ByteSource, header: SegmentHeader, durable_lsn: int) -> SegmentView:
    """Return a view of the bytes of a segment."""
    return SegmentView(source.data[: header.size], header, durable_lsn, source.written)


class Scan:
    """One pass over a log; the attributes are final once `steps` is exhausted.

    Attributes:
        findings: those of the catalog, and those of the walk.
        next_lsn: the LSN of the next record to be written.
        end: the place where the next group goes; None if there is no segment.
        clean: false if the log ended in a torn group.
        sealed: true if an index ends the last segment: the roll to the next one was not finished.
        broken: true if recovery must refuse.
        time_us: the latest time of a group or segment, in microseconds.
    """

    def __init__(
        self,
        catalog: Catalog,
        access: FileAccess | None = None,
        start: tuple[SegmentFile, Expected | None] | None = None,
        read_run: ReadRun | None = None,
    ) -> None:
        self.catalog = catalog
        self._read_run = read_run
        self._start_at = start
        self.access = access or FileAccess()
        self.findings: list[Finding] = list(catalog.findings)
        self.next_lsn = LSN_FIRST
        self.end: tuple[SegmentFile, Expected] | None = None
        self.clean = True
        self.sealed = False
        self.broken = bool(fatal(self.findings))
        self.time_us = 0
        self._archive = catalog.archive is not None
        self._after_damage = (
            catalog.control is None and bool(catalog.segments) and not self._archive
        )

    def steps(self) -> Iterator[Step]:
        """Yield every place, segment by segment."""
        previous: SegmentFile | None = None
        files = self.catalog.segments
        if self._start_at is not None:
            files = files[files.index(self._start_at[0]) :]
        for file in files:
            self._join(previous, file)
            try:
                source, view = open_segment(file, self.access)
            except LogUnreadableError as error:
                self._report("unreadable", str(error), file, 0, advice=error.advice)
                self._break()
                continue
            with source:
                yield from self._segment(file, view)
                # Steps that are kept hold the view: with the bytes in it the source could not be
                # released.
                view.data = b""
            previous = file

    def _join(self, previous: SegmentFile | None, file: SegmentFile) -> None:
        """Check that ``file`` continues the segment before it."""
        header = file.header
        assert header is not None
        # Groups that were freed count, too: no later one is older than its segment.
        self.time_us = max(self.time_us, header.created_us)
        if file.status is FileStatus.DAMAGED:
            self._break()
        elif previous is None:
            self._start(file)
        elif previous.header is None or header.previous != previous.header.number:
            if not self._archive:
                self._break()  # the missing segment is in the catalog's findings
            self.next_lsn = header.first_lsn
        elif header.first_lsn != self.next_lsn and not self._after_damage:
            self._report(
                "broken-chain",
                f"the segment begins with record {header.first_lsn} instead of {self.next_lsn}",
                file,
                0,
            )
            self._break()
        elif not (self._after_damage or self._continues(header)):
            self._report(
                "broken-chain",
                f"the segment was begun after another record {self.next_lsn - 1} than this log "
                "has: it is of another copy of the log, or the segment before it is",
                file,
                0,
            )
            self._break()

    def _continues(self, header: SegmentHeader) -> bool:
        """Return whether a segment was begun after the last group of the one before it."""
        due = self.end[1] if self.end else None
        return due is None or (header.previous_end, header.chain) == (due.offset, due.chain)

    def _start(self, file: SegmentFile) -> None:
        header = file.header
        assert header is not None
        self.next_lsn = header.first_lsn
        control = self.catalog.control
        if control and header.number > control.first_segment and self._start_at is None:
            self._break()

    def _segment(self, file: SegmentFile, view: SegmentView) -> Iterator[Step]:
        due = Expected.first_of(view.header)
        if self._start_at is not None and self._start_at[0] is file:
            due = self._start_at[1] or due
        if file.status is FileStatus.DAMAGED:
            found = view.copies_from(DATA_OFFSET).lead_from(0, 0)
            if found is None:
                return
            due = Expected.at(found)
        self.end = (file, due)
        for place in view.walk(due, stop=file.stated_end, read_run=self._read_run):
            after_damage = self._after_damage
            self._note(file, place)
            yield Step(file, view, place, after_damage)
            if place.then is not None:
                self.next_lsn = place.then.lsn
                self.end = (file, place.then)
            if place.case is Case.CORRUPT:
                self._break()
        self._check_size(file, view)
        self._check_index(file, view)

    def _check_size(self, file: SegmentFile, view: SegmentView) -> None:
        """Refuse a last segment that was cut: its size was durable before its first group.

        What stood after the cut is unknown. Of a segment with a successor it is known: its groups
        are verified up to the end that the successor states.
        """
        assert file.header is not None
        size, whole = len(view.data), file.header.size
        if file.stated_end is None and size < whole:
            self._report(
                "short-segment",
                f"the last segment has {size:,} bytes and was made with {whole:,}: it was cut, "
                "and records may have stood there",
                file,
                size,
                bytes_at_risk=whole - size,
            )
            self._break()

    def _check_index(self, file: SegmentFile, view: SegmentView) -> None:
        """Report a damaged or missing index; the groups hold all that it says."""
        size = len(view.data)
        self.sealed = view.index is not None
        if view.index_damaged:
            self._report(
                "index-damaged",
                "the index of a sealed segment is damaged; its groups are found by walking",
                file,
                size,
            )
        elif file.stated_end is not None and view.index is None:
            self._report(
                "index-missing",
                "a segment that was left has no index: the roll was interrupted, or the index is "
                "damaged; its groups are found by walking",
                file,
                size,
            )

    def _note(self, file: SegmentFile, place: Place) -> None:
        if place.header is not None and place.case.whole:
            self.time_us = max(self.time_us, place.header.time_us)
        if place.case is Case.REPAIRED:
            self._report(
                "header-repaired",
                f"{place.reason}; the other copy is whole and is used",
                file,
                place.offset,
            )
        elif place.case is Case.CORRUPT:
            self._report_damage(file, place)
        elif place.case is Case.TORN:
            self.clean = False
            self._report(
                "torn-tail",
                f"the last group is not whole ({place.reason}); opening the log cuts it off",
                file,
                place.offset,
                bytes_at_risk=place.end - place.offset,
            )

    def _report_damage(self, file: SegmentFile, place: Place) -> None:
        lost = counted(place.lost, "acknowledged record")
        are = "is" if place.lost == 1 else "are"
        rest = "nothing readable follows in this segment"
        if place.then is not None:
            rest = (
                f"whole records follow from record {place.then.lsn} at offset {place.then.offset}"
            )
        self._report(
            "corrupt-group",
            f"{lost} from record {place.lsn} on {are} damaged: {place.reason}; {rest}",
            file,
            place.offset,
            bytes_at_risk=place.end - place.offset,
        )

    def _break(self) -> None:
        self.broken = True
        self._after_damage = True

    def _report(
        self, code: str, message: str, file: SegmentFile, offset: int, **details: Any
    ) -> None:
        self.findings.append(
            self.catalog.finding(code, message, file=file.path, offset=offset, **details)
        )
