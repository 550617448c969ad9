"""Every byte of every log file, sorted into ranges: what the engine reads, and what follows it.

In: `LogFiles`, and how far the engine gets. Out: `ByteRange`s that tile each file in order. A
record is found by its own instant, eight bytes that state its place: so the scan continues after
damage that ends the engine's scan.

    place                                       outcome
    reached by a scan of the engine, or         valid
      intact and before recovery's start
    in a group whose checksum differs,          corrupt: it was acknowledged
      or bytes of no record; records follow
    the same, and nothing follows               torn: the last write never finished
    intact, after the engine's end              valid, salvaged
    in a file that no chain reaches and that    stale
      does not fit the end of the one before
    zeros                                       unused (corrupt if records follow)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tallystick.records import Outcome
from tallystick.storage.zeros import last_nonzero_end
from tallystick.systems.derby.format.layout import (
    CHECKSUM_HEAD,
    CHECKSUM_OPERATION,
    HEADER,
    HEADER_SIZE,
    LENGTH,
    PREFIX,
    Envelope,
    find_record,
    is_record_at,
    make_instant,
    read_envelope,
)
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.files import LogBytes, LogFiles, has_header
from tallystick.systems.derby.read.spans import ByteRange

DROPPED = "intact, but after the end that the engine finds"
_STALE = "the file does not continue the one before it; the engine ignores it"


@dataclass(frozen=True, slots=True)
class EngineReach:
    """How far the engine's scans get, as ranges of instants, begin and end.

    Attributes:
        recovery: the scan of a restart, from the undo mark; (0, 0) if there is none.
        whole: a scan from the first file's first record; (0, 0) without log files.
        undo_mark: a restart takes everything before it for granted.
    """

    recovery: tuple[int, int]
    whole: tuple[int, int]
    undo_mark: int


class LogScan:
    """Sorts the bytes of a log; its ranges may be iterated any number of times."""

    def __init__(self, log: LogFiles, reach: EngineReach) -> None:
        self.log = log
        self._recovery_begin, self._recovery_end = reach.recovery
        self._whole_begin, self._whole_end = reach.whole
        self._undo_mark = reach.undo_mark
        self._last = max(self._whole_end, self._recovery_end) >> 32
        self._has_checksums = any(map(_starts_with_checksum, log.files.values()))
        self._searched = dict[int, tuple[int, int | None]]()  # by file: from where, and found

    def ranges(self, first: int = 0) -> Iterator[ByteRange]:
        """Yield all ranges from file ``first`` on, in order of file numbers."""
        for number in self.log.files:
            if number >= first:
                yield from self.file_ranges(number)

    def file_ranges(self, number: int) -> Iterator[ByteRange]:
        """Yield the ranges of one file."""
        yield from self.file(number).ranges()

    def file(self, number: int) -> FileScan:
        """Return the scan of one file."""
        return FileScan(self, self.log.files[number])

    def reached(self, place: int) -> bool:
        """Return whether a scan of the engine reaches the instant."""
        return self.in_scan(place) or self._recovery_begin <= place < self._recovery_end

    def believed(self, place: int) -> bool:
        """Return whether a restart uses the instant: it is reached, or before the undo mark."""
        return self.reached(place) or place < self._undo_mark

    def believed_until(self, place: int) -> int:
        """Return an instant up to which a restart uses every one from ``place`` on."""
        extents = (
            (self._whole_begin, self._whole_end),
            (self._recovery_begin, self._recovery_end),
            (0, self._undo_mark),
        )
        for begin, end in (*extents, *extents):  # one may go on where a later one ends
            place = end if begin <= place < end else place
        return place

    def dropped_until(self, place: int) -> int | None:
        """Return an instant up to which a restart uses none from ``place`` on; None: no end."""
        begins = (self._whole_begin, self._recovery_begin)
        return min((one for one in begins if one > place), default=None)

    def reaches(self, end: int) -> bool:
        """Return whether the scan from the first file goes on up to the instant."""
        return self._whole_end >= end

    def in_scan(self, place: int) -> bool:
        """Return whether the scan from the first file reaches the instant."""
        return self._whole_begin <= place < self._whole_end

    def is_passed(self, number: int) -> bool:
        """Return whether the engine's scan went through the file and into a later one."""
        return number < self._last

    def is_stale(self, file: LogBytes) -> bool:
        """Return whether no scan reaches the file and it does not continue the one before."""
        if file.number <= self._last or file.size < HEADER_SIZE:
            return False
        before = self.log.files.get(file.number - 1)
        if before is None:
            return False
        # The header was written at the switch of files and names the end that the file before had
        # then. Damage inside that file does not move its end, so it is skipped in looking for it.
        return bool(HEADER.unpack_from(file.data)[3] != _intact_end(before))

    def group_follows(self, file: LogBytes, position: int) -> bool:
        """Return whether a whole group is at or after the place, here or in a later file.

        Records alone may be the rest of one torn write; a log without checksums has no better
        evidence.
        """
        return self._group_from(file, position) or file.number < self._last_with_group

    @cached_property
    def _last_with_group(self) -> int:
        """The last file that has a whole group and is not stale; 0 if there is none."""
        for file in sorted(self.log.files.values(), key=lambda one: one.number, reverse=True):
            if not self.is_stale(file) and self._group_from(file, HEADER_SIZE):
                return file.number
        return 0

    def _group_from(self, file: LogBytes, position: int) -> bool:
        # Without what an earlier search has passed, each of many damaged places in a file without a
        # whole group would look through the rest of it.
        begin, found = self._searched.get(file.number, (file.size, None))
        if position < begin or (found is not None and found < position):
            found = self._find_group(file, position)
            self._searched[file.number] = position, found
        return found is not None

    def _find_group(self, file: LogBytes, position: int) -> int | None:
        place = find_record(file.data, file.number, position)
        # Without checksums (before 10.1), or without the key that shows which bodies are checksum
        # records, a whole record is all the evidence there is.
        while place is not None and self._has_checksums and not self.log.sealed:
            envelope = read_envelope(file.data, place)
            assert envelope is not None
            _, body, _ = self.log.decode_or_error(file.number, envelope)
            if file.checksum_holds(envelope, body):
                break
            place = find_record(file.data, file.number, envelope.end)
        return place


class FileScan:
    """The scan of one file; keeps the group that it is in."""

    def __init__(self, scan: LogScan, file: LogBytes) -> None:
        self._scan = scan
        self._file = file
        self._stale = scan.is_stale(file)
        self._group_end = 0
        self._group_outcome = Outcome.VALID
        self._group_reason = ""

    @property
    def file(self) -> LogBytes:
        """The file."""
        return self._file

    def ranges(self) -> Iterator[ByteRange]:
        """Yield all ranges."""
        yield self.header()
        yield from self.rest(HEADER_SIZE)

    def believed_until(self) -> int:
        """Return an offset up to which records that are plain are valid, from the first one on."""
        end, dropped = self.alike_until(HEADER_SIZE)
        return HEADER_SIZE if dropped else end

    def alike_until(self, position: int) -> tuple[int, bool]:
        """Return up to which offset plain records are judged alike, and whether they are dropped.

        That is ``position`` itself where each is judged by what is before it: in a file that is
        stale, and in a group that is damaged.
        """
        damaged = position < self._group_end and self._group_outcome is not Outcome.VALID
        if self._stale or damaged:
            return position, False
        base, size = make_instant(self._file.number, 0), self._file.size
        end = self._scan.believed_until(base | position) - base
        if end > position:
            return min(end, size), False
        until = self._scan.dropped_until(base | position)
        return size if until is None else min(until - base, size), True

    def rest(self, position: int) -> Iterator[ByteRange]:
        """Yield the ranges from an offset on, before which no group is damaged."""
        while position < self._file.size:
            for one in self.step(position):
                yield one
                position = one.offset + one.length

    def step(self, position: int) -> Iterator[ByteRange]:
        """Yield the record at an offset, or the ranges from there up to the next record."""
        file = self._file
        envelope = self._record_at(position)
        if envelope is not None:
            yield self._record(envelope)
            return
        found = find_record(file.data, file.number, position + 1)
        yield from self._gap(position, file.size if found is None else found, found)

    def header(self) -> ByteRange:
        """Return the range of the file's header."""
        file = self._file
        size = min(HEADER_SIZE, file.size)
        outcome, reason = Outcome.VALID, ""
        if file.size < HEADER_SIZE:
            outcome, reason = Outcome.TORN, "the header is cut short"
        elif not has_header(file):
            outcome, reason = Outcome.CORRUPT, "format id or file number is wrong"
        elif self._stale:
            outcome, reason = Outcome.STALE, _STALE
        return ByteRange(file, 0, size, outcome, "file header", reason)

    def _record_at(self, position: int) -> Envelope | None:
        """Return the record here if it is whole, or if a scan of the engine accepts it."""
        envelope = read_envelope(self._file.data, position)
        if envelope is None:
            return None
        place = make_instant(self._file.number, position)
        # The engine lets an instant or a trailing length pass that is too large (format, The
        # forward scan). What it takes for a record is one here, too.
        whole = envelope.instant == place and envelope.trailing == envelope.length
        return envelope if whole or self._scan.reached(place) else None

    def _record(self, envelope: Envelope) -> ByteRange:
        place = make_instant(self._file.number, envelope.position)
        clear, body, error = self._scan.log.decode_or_error(self._file.number, envelope)
        checksum = self._enter_group(envelope, body, place)
        outcome, reason = self._judge(envelope, place, error)
        return ByteRange(
            self._file,
            envelope.position,
            envelope.end - envelope.position,
            outcome,
            "record",
            reason,
            envelope,
            body,
            salvaged=outcome is Outcome.VALID and not self._scan.believed(place),
            in_scan=self._scan.in_scan(place),
            checksum_valid=checksum,
            clear=clear,
        )

    def _judge(self, envelope: Envelope, place: int, error: str) -> tuple[Outcome, str]:
        if self._stale:
            return Outcome.STALE, _STALE
        # Before all else: a checksum covers the group as a whole, so a record that decodes is no
        # more proven than the others in it.
        if envelope.position < self._group_end and self._group_outcome is not Outcome.VALID:
            return self._group_outcome, self._group_reason
        if error:
            return Outcome.CORRUPT, error
        if self._scan.believed(place):
            return Outcome.VALID, ""
        return Outcome.VALID, DROPPED

    def _enter_group(self, envelope: Envelope, body: Body | None, place: int) -> bool | None:
        """At a checksum record, check the group that follows and remember the result."""
        holds = self._file.checksum_holds(envelope, body)
        if body is None or holds is None:
            return None
        if envelope.end <= self._group_end and self._group_outcome is not Outcome.VALID:
            return holds  # inside a damaged group, which is judged as a whole
        # The length is a signed number and may itself be what is damaged.
        self._group_end = envelope.end + max(body.fields["dataLength"], 0)
        self._group_outcome, self._group_reason = Outcome.VALID, ""
        if not holds and not self._scan.reached(place):
            self._mark_damaged(envelope)
        return holds

    def _mark_damaged(self, envelope: Envelope) -> None:
        """Mark the group damaged, up to the next one."""
        # A damaged length may reach beyond the file, or over whole groups that follow: the next
        # checksum record ends the group at the latest.
        self._group_end = min(self._group_end, self._file.size)
        nearest = self._next_group(envelope.end)
        if nearest is not None and nearest < self._group_end:
            self._group_end = nearest
        self._group_end = max(self._group_end, envelope.end)
        self._group_outcome, self._group_reason = self._damage(self._group_end)

    def _next_group(self, position: int) -> int | None:
        """Where the next checksum record is, following whole records only."""
        while (envelope := read_envelope(self._file.data, position)) is not None:
            if not is_record_at(self._file.data, self._file.number, position):
                return None
            _, body, _ = self._scan.log.decode_or_error(self._file.number, envelope)
            if body is not None and body.operation == CHECKSUM_OPERATION:
                return position
            position = envelope.end
        return None

    def _damage(self, end: int) -> tuple[Outcome, str]:
        if self._scan.group_follows(self._file, end):
            return Outcome.CORRUPT, "damaged, and whole records follow"
        return Outcome.TORN, "the last write never finished"

    def _gap(self, begin: int, end: int, found: int | None) -> Iterator[ByteRange]:
        """Bytes that are no record: damage, end marker, fill."""
        file = self._file
        # Zeros before a record are no fill but damage: a writer leaves no gap between records.
        used = last_nonzero_end(file.data, begin, end) if found is None else end
        if used > begin:
            outcome, reason = self._damage(end)
            yield ByteRange(file, begin, used - begin, outcome, "damaged bytes", reason)
        # Only in a file that the engine's scan leaves for the next one are four zeros a marker;
        # elsewhere they are the begin of the preallocated fill.
        elif self._scan.is_passed(file.number) and end - begin >= LENGTH.size:
            yield ByteRange(file, begin, LENGTH.size, Outcome.VALID, "end marker")
            used = begin + LENGTH.size
        if end > used:
            reason = "zeros after the last record"
            yield ByteRange(file, used, end - used, Outcome.UNUSED, "zero fill", reason)


def _starts_with_checksum(file: LogBytes) -> bool:
    """Plain files only; without its key nothing is known of an encrypted one's content."""
    head = PREFIX.size + HEADER_SIZE
    return file.data[head : head + len(CHECKSUM_HEAD)] == CHECKSUM_HEAD


def _intact_end(file: LogBytes) -> int:
    """Return the instant after the last whole record of the file; damage is skipped."""
    position, end = find_record(file.data, file.number, HEADER_SIZE), HEADER_SIZE
    while position is not None:
        envelope = read_envelope(file.data, position)
        assert envelope is not None
        end = envelope.end
        position = find_record(file.data, file.number, end)
    return make_instant(file.number, end)
