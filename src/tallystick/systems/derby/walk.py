"""Every byte of every log file, sorted into pieces: what the engine reads, and what lies behind.

In: `LogFiles`. Out: `Piece`s that tile each file in order. A record is found by its own instant:
eight bytes that say where it lies, so the walk goes on behind damage that ends the engine's scan.

    place                                       outcome
    reached by a scan of the engine, or         valid
      intact and before recovery's start
    in a group whose checksum differs,          corrupt: it was acknowledged
      or bytes of no record; records follow
    the same, and nothing follows               torn: the last write never finished
    intact, behind the engine's end             valid, salvaged
    in a file that no chain reaches and that    stale
      does not fit the end of the one before
    zeros                                       unused (corrupt if records follow)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.errors import LogFormatError
from tallystick.records import Outcome
from tallystick.storage.crc import crc32
from tallystick.systems.derby.body import Body, decode_body
from tallystick.systems.derby.files import LogBytes, LogFiles, SealedBodyError
from tallystick.systems.derby.layout import (
    CHECKSUM_HEAD,
    CHECKSUM_OPERATION,
    END_MARKER,
    HEADER,
    HEADER_SIZE,
    LENGTH,
    LOG_FILE,
    PREFIX,
    Envelope,
    find_record,
    make_instant,
    read_envelope,
    stands_at,
)
from tallystick.systems.derby.recovery import Recovery
from tallystick.systems.derby.scan import ForwardScan, ScanFailureError

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of one file: a record if it has an envelope.

    ``body`` is null for a sealed or undecodable record; ``checksum_valid`` is set on checksum
    records only; ``in_scan`` is true where the scan from the first file gets.
    """

    file: LogBytes
    offset: int
    length: int
    outcome: Outcome
    what: str
    reason: str = ""
    envelope: Envelope | None = None
    body: Body | None = None
    salvaged: bool = False
    in_scan: bool = False
    checksum_valid: bool | None = None

    clear: bytes | None = None
    """The record's body, decrypted where the key is known."""

    @property
    def place(self) -> int:
        """The instant of its first byte."""
        return make_instant(self.file.number, self.offset)


class Chain:
    """The records of one file from its header on, by lengths alone, damaged groups included.

    After iteration ``position`` is where it stopped and ``stop`` why: ``zero``, ``eof``,
    ``short`` (fewer bytes than a length), ``length``, ``instant`` or ``trailing``.
    """

    def __init__(self, file: LogBytes) -> None:
        self._file = file
        self.position = HEADER_SIZE
        self.stop = ""

    def __iter__(self) -> Iterator[Envelope]:
        while not self.stop:
            envelope = read_envelope(self._file.data, self.position)
            self.stop = self._why_not(envelope)
            if envelope is not None and not self.stop:
                yield envelope
                self.position = envelope.end

    def _why_not(self, envelope: Envelope | None) -> str:
        if envelope is None:
            return self._end()
        if envelope.instant < make_instant(self._file.number, self.position):
            return "instant"
        return "trailing" if envelope.trailing < envelope.length else ""

    def _end(self) -> str:
        left = self._file.size - self.position
        if left <= 0:
            return "eof"
        if left < LENGTH.size:
            return "short"
        at = self._file.data[self.position : self.position + LENGTH.size]
        return "zero" if at == END_MARKER else "length"


def last_nonzero(data: memoryview, begin: int, end: int) -> int:
    """The offset behind the last byte in ``begin..end`` that is not zero; ``begin`` if all are."""
    while end > begin:
        start = max(begin, end - _CHUNK)
        kept = bytes(data[start:end]).rstrip(b"\0")
        if kept:
            return start + len(kept)
        end = start
    return begin


class Walk:
    """Sorts the bytes of a log; `pieces` may be iterated any number of times."""

    def __init__(self, log: LogFiles, recovery: Recovery) -> None:
        self.log = log
        self._undo_mark = recovery.undo_mark
        self._scanned = (0, 0)
        if log.files:
            self._scanned = _extent(log, make_instant(log.first, HEADER_SIZE))
        self._recovered = (
            _extent(log, recovery.start) if recovery.start >> 32 in log.files else (0, 0)
        )
        self._last = max(self._scanned[1], self._recovered[1]) >> 32
        self._has_checksums = any(map(_starts_with_checksum, log.files.values()))

    def pieces(self) -> Iterator[Piece]:
        """All pieces, file by file in order of numbers, each file tiled."""
        for number in self.log.files:
            yield from self.file_pieces(number)

    def file_pieces(self, number: int) -> Iterator[Piece]:
        """The pieces of one file."""
        yield from _FileWalk(self, self.log.files[number]).pieces()

    @staticmethod
    def bare(log: LogFiles, number: int, chain: Chain) -> Iterator[Piece]:
        """The records of a chain as pieces, believed or not; checksums are tried."""
        file = log.files[number]
        for envelope in chain:
            clear, body, error = decode_or_error(log, number, envelope)
            length = envelope.end - envelope.position
            outcome = Outcome.CORRUPT if error else Outcome.VALID
            yield Piece(
                file,
                envelope.position,
                length,
                outcome,
                "record",
                error,
                envelope,
                body,
                checksum_valid=checksum_holds(file, envelope, body),
                clear=clear,
            )

    def reached(self, place: int) -> bool:
        """True where a scan of the engine gets."""
        return self.in_scan(place) or self._recovered[0] <= place < self._recovered[1]

    def believed(self, place: int) -> bool:
        """True for what a boot takes for granted: reached, or older than recovery's start."""
        return self.reached(place) or place < self._undo_mark

    def in_scan(self, place: int) -> bool:
        """True where the scan from the first file gets."""
        return self._scanned[0] <= place < self._scanned[1]

    def clean_to_end(self, number: int) -> bool:
        """True if the engine's scan went through this file and into the next one."""
        return number < self._last

    def is_stale(self, file: LogBytes) -> bool:
        """True if no chain reaches the file and it does not continue the one before."""
        if file.number <= self._last or file.size < HEADER_SIZE:
            return False
        before = self.log.files.get(file.number - 1)
        if before is None:
            return False
        return bool(HEADER.unpack_from(file.data)[3] != _intact_end(before))

    def follows(self, file: LogBytes, position: int) -> bool:
        """True if a whole group stands at or behind the place, here or in a later file.

        Records alone may be the rest of one torn write; a log without checksums has no better.
        """
        later = [other for number, other in self.log.files.items() if number > file.number]
        return self._group_from(file, position) or any(
            not self.is_stale(other) and self._group_from(other, HEADER_SIZE) for other in later
        )

    def _group_from(self, file: LogBytes, position: int) -> bool:
        place = find_record(file.data, file.number, position)
        if place is None or not self._has_checksums or self.log.sealed:
            return place is not None
        while place is not None:
            envelope = read_envelope(file.data, place)
            assert envelope is not None
            _, body, _ = decode_or_error(self.log, file.number, envelope)
            if checksum_holds(file, envelope, body):
                return True
            place = find_record(file.data, file.number, envelope.end)
        return False


def _starts_with_checksum(file: LogBytes) -> bool:
    """Plain files only; what an encrypted one holds is no matter without its key."""
    head = PREFIX.size + HEADER_SIZE
    return file.data[head : head + len(CHECKSUM_HEAD)] == CHECKSUM_HEAD


def decode_or_error(
    log: LogFiles, number: int, envelope: Envelope
) -> tuple[bytes, Body | None, str]:
    """The body in clear and decoded, or why it cannot be; a sealed one is given as it stands."""
    clear = bytes(log.raw(number, envelope))
    try:
        clear = bytes(log.clear(number, envelope))
        return clear, decode_body(clear), ""
    except SealedBodyError:
        return clear, None, ""
    except LogFormatError as error:
        return clear, None, str(error)


def checksum_holds(file: LogBytes, envelope: Envelope, body: Body | None) -> bool | None:
    """Whether the data behind a checksum record has its CRC; None for any other record."""
    if body is None or body.operation != CHECKSUM_OPERATION:
        return None
    size = body.fields["dataLength"]
    covered = file.data[envelope.end : envelope.end + max(size, 0)]
    return bool(len(covered) == size and crc32(covered) == body.fields["checksumValue"])


def _extent(log: LogFiles, start: int) -> tuple[int, int]:
    scan = ForwardScan(log, start)
    try:
        for _ in scan:
            pass
    except ScanFailureError:
        pass
    return start, scan.stop


def _intact_end(file: LogBytes) -> int:
    """The instant behind the last whole record of the file, damage passed over."""
    position, end = find_record(file.data, file.number, HEADER_SIZE), HEADER_SIZE
    while position is not None:
        envelope = read_envelope(file.data, position)
        assert envelope is not None
        end = envelope.end
        position = (
            end
            if stands_at(file.data, file.number, end)
            else find_record(file.data, file.number, end)
        )
    return make_instant(file.number, end)


class _FileWalk:
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
        used = last_nonzero(file.data, begin, end) if found is None else end
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
