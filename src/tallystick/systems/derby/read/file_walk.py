"""The walk through one log file: its header, its groups, its records, and what is none.

In: a file, and the `Walk` that knows how far the engine gets. Out: the file's `Piece`s in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tallystick.records import Outcome
from tallystick.storage.zeros import last_nonzero_end
from tallystick.systems.derby.format.layout import (
    CHECKSUM_OPERATION,
    HEADER,
    HEADER_SIZE,
    LENGTH,
    LOG_FILE,
    Envelope,
    find_record,
    make_instant,
    read_envelope,
    stands_at,
)
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.byte_ranges import Piece, checksum_holds, decode_or_error
from tallystick.systems.derby.read.files import LogBytes

if TYPE_CHECKING:
    from tallystick.systems.derby.read.scan import Walk


class FileWalk:
    """The walk through one file; keeps the group that it is in."""

    def __init__(self, walk: Walk, file: LogBytes) -> None:
        self._walk = walk
        self._file = file
        self._stale = walk.is_stale(file)
        self._group_end = 0
        self._group_outcome = Outcome.VALID
        self._group_reason = ""

    def pieces(self) -> Iterator[Piece]:
        file = self._file
        yield self._header()
        position = HEADER_SIZE
        while position < file.size:
            envelope = self._record_at(position)
            if envelope is not None:
                yield self._record(envelope)
                position = envelope.end
                continue
            found = find_record(file.data, file.number, position + 1)
            yield from self._gap(position, file.size if found is None else found, found)
            position = file.size if found is None else found

    def _header(self) -> Piece:
        file = self._file
        size = min(HEADER_SIZE, file.size)
        if file.size < HEADER_SIZE:
            return Piece(file, 0, size, Outcome.TORN, "file header", "the header is cut short")
        number = HEADER.unpack_from(file.data)[2]
        if int.from_bytes(file.data[:4]) != LOG_FILE or number != file.number:
            reason = "format id or file number is wrong"
            return Piece(file, 0, size, Outcome.CORRUPT, "file header", reason)
        if self._stale:
            return Piece(file, 0, size, Outcome.STALE, "file header", _STALE)
        return Piece(file, 0, size, Outcome.VALID, "file header")

    def _record_at(self, position: int) -> Envelope | None:
        """The record that stands here, whole, or that a scan of the engine accepts here."""
        envelope = read_envelope(self._file.data, position)
        if envelope is None:
            return None
        place = make_instant(self._file.number, position)
        own = envelope.instant == place and envelope.trailing == envelope.length
        return envelope if own or self._walk.reached(place) else None

    def _record(self, envelope: Envelope) -> Piece:
        place = make_instant(self._file.number, envelope.position)
        clear, body, error = decode_or_error(self._walk.log, self._file.number, envelope)
        checksum = self._enter_group(envelope, body, place)
        outcome, reason = self._judge(envelope, place, error)
        return Piece(
            self._file,
            envelope.position,
            envelope.end - envelope.position,
            outcome,
            "record",
            reason,
            envelope,
            body,
            salvaged=outcome is Outcome.VALID and not self._walk.believed(place),
            in_scan=self._walk.in_scan(place),
            checksum_valid=checksum,
            clear=clear,
        )

    def _judge(self, envelope: Envelope, place: int, error: str) -> tuple[Outcome, str]:
        if self._stale:
            return Outcome.STALE, _STALE
        if envelope.position < self._group_end and self._group_outcome is not Outcome.VALID:
            return self._group_outcome, self._group_reason
        if error:
            return Outcome.CORRUPT, error
        if self._walk.believed(place):
            return Outcome.VALID, ""
        return Outcome.VALID, "intact, but behind the end that the engine finds"

    def _enter_group(self, envelope: Envelope, body: Body | None, place: int) -> bool | None:
        """At a checksum record, check the group behind it and remember the result."""
        holds = checksum_holds(self._file, envelope, body)
        if body is None or holds is None:
            return None
        if envelope.end <= self._group_end and self._group_outcome is not Outcome.VALID:
            return holds  # inside a damaged group; that one is judged as a whole
        self._group_end = envelope.end + max(body.fields["dataLength"], 0)
        self._group_outcome, self._group_reason = Outcome.VALID, ""
        if not holds and not self._walk.reached(place):
            self._condemn(envelope)
        return holds

    def _condemn(self, envelope: Envelope) -> None:
        """Mark the group damaged, up to where the next one stands."""
        self._group_end = min(self._group_end, self._file.size)
        nearest = self._next_group(envelope.end)
        if nearest is not None and nearest < self._group_end:
            self._group_end = nearest
        self._group_end = max(self._group_end, envelope.end)
        self._group_outcome, self._group_reason = self._damage(self._group_end)
        if self._group_reason == "":
            self._group_reason = "the checksum of the group differs"

    def _next_group(self, position: int) -> int | None:
        """Where the next checksum record stands, following whole records only."""
        while (envelope := read_envelope(self._file.data, position)) is not None:
            if not stands_at(self._file.data, self._file.number, position):
                return None
            _, body, _ = decode_or_error(self._walk.log, self._file.number, envelope)
            if body is not None and body.operation == CHECKSUM_OPERATION:
                return position
            position = envelope.end
        return None

    def _damage(self, behind: int) -> tuple[Outcome, str]:
        if self._walk.follows(self._file, behind):
            return Outcome.CORRUPT, "damaged, and whole records follow"
        return Outcome.TORN, "the last write never finished"

    def _gap(self, begin: int, end: int, found: int | None) -> Iterator[Piece]:
        """Bytes that are no record: damage, end marker, fill."""
        file = self._file
        used = last_nonzero_end(file.data, begin, end) if found is None else end
        if used > begin:
            outcome, reason = self._damage(end)
            yield Piece(file, begin, used - begin, outcome, "damaged bytes", reason)
        elif self._walk.clean_to_end(file.number) and end - begin >= LENGTH.size:
            yield Piece(file, begin, LENGTH.size, Outcome.VALID, "end marker")
            used = begin + LENGTH.size
        if end > used:
            reason = "zeros behind the last record"
            yield Piece(file, used, end - used, Outcome.UNUSED, "zero fill", reason)


_STALE = "the file does not continue the one before it; the engine ignores it"
