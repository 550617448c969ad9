"""The engine's own forward scan: the records that it returns, where it ends, and why.

Rules in the order in which the engine applies them, at position p of a file of F bytes:

    p + 4 > F                       end; fuzzy unless p = F
    length 0                        next file; missing, or not linked to the end reached: clean end;
                                    header wrong: failure; no bytes for a record: clean end there
    p + length + 16 > F             fuzzy end
    instant < known good end        fuzzy end (one that is too large is not noticed)
    length < 0, body undecodable    failure; of the body only format id and group are read here
    trailing length < length        fuzzy end (one that is too large is not noticed)
    format id 0                     failure: it stands for no object, and is used here first
    checksum record                 never returned; data beyond F or another CRC: fuzzy end; length
                                    too much for a small heap: fuzzy end, or failure

A failure is an exception of the engine: the database does not boot. Without the key of an
encrypted log only the envelopes can be followed: no checksum is tried, every record is returned.
Source: docs/formats/derby.md, section "The forward scan".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from tallystick.errors import LogFormatError
from tallystick.storage.crc import crc32
from tallystick.systems.derby.format.field_types import OtherObjectError
from tallystick.systems.derby.format.layout import (
    CHECKSUM_CRC32,
    CHECKSUM_OPERATION,
    HEADER,
    HEADER_CHECKED_SIZE,
    HEADER_SIZE,
    LENGTH,
    LOG_FILE,
    LOG_RECORD_FIXED_OVERHEAD_SIZE,
    PREFIX,
    Envelope,
    Group,
    instant_text,
    make_instant,
    split_instant,
)
from tallystick.systems.derby.format.record_body import (
    Body,
    decode_body,
    decode_group,
    decode_operation,
)
from tallystick.systems.derby.read.files import LogBytes, LogFiles

if TYPE_CHECKING:
    from tallystick.systems.derby.runs.chunk import PlainRun

    Skip: TypeAlias = Callable[[LogBytes, int], PlainRun | None]

T = TypeVar("T")

ARRAY_MAX = (1 << 31) - 3
"""Largest Java array: the engine allocates the length in a checksum record before it reads."""
ENDS_IN_ZEROS = "the log ends with zeros here"
"""Why a scan ended that has looked for another file."""
NULL_FORMAT = bytes(2)
HEAP_SURE = 1 << 26
"""An allocation of so many bytes is taken to succeed in every engine's heap."""


class ScanFailureError(Exception):
    """The engine throws an exception at the instant ``place``; ``text`` is its cause.

    It is not ``sure`` where the engine may also go on.
    """

    def __init__(self, place: int, text: str, *, sure: bool = True) -> None:
        super().__init__(f"{instant_text(place)}: {text}")
        self.place = place
        self.text = text
        self.sure = sure


@dataclass(frozen=True, slots=True)
class Scanned:
    """A record that the scan returned; its body is decoded on demand."""

    file: int
    envelope: Envelope
    group: Group
    clear: bytes | memoryview

    @property
    def place(self) -> int:
        """The instant by position; the one in the envelope may be larger."""
        return make_instant(self.file, self.envelope.position)

    def body(self) -> Body:
        """Decode the whole body; raises `ScanFailureError`."""
        return self.decoded(decode_body)

    def operation(self) -> Body:
        """Decode the body; raises `ScanFailureError` if the engine could not, tail apart."""
        return self.decoded(decode_operation)

    def decoded(self, decode: Callable[[bytes | memoryview], T]) -> T:
        """Decode a part of the body; raises `ScanFailureError` if the engine could not."""
        try:
            return decode(self.clear)
        except OtherObjectError as error:
            raise ScanFailureError(self.place, str(error), sure=False) from error
        except LogFormatError as error:
            raise ScanFailureError(self.place, str(error)) from error


class ForwardScan:
    """A scan from ``start``: iterate over it once, then its attributes say how it ended.

    With ``skip`` the records of the runs that it takes are counted and not yielded: it returns the
    run from an offset of a file on, or None where it takes no more.

    Attributes:
        records: number of records returned.
        last: instant in the envelope of the last record returned.
        log_end: instant after the last record returned, or the start of an empty file that the
            scan ended in; 0 if nothing was returned.
        stop: instant at which the scan stopped.
        covered: instant after the last whole group; where a record inside cannot be read, the scan
            stops before it.
        fuzzy: the engine would overwrite the rest of the file with zeros.
        reason: why the scan ended.
        trailing_wrong: instants of the ends of records whose trailing length is too large.
        heap: instant of a checksum record for which the engine allocates more than a heap may hold;
            0 if there is none.
    """

    def __init__(self, log: LogFiles, start: int, skip: Skip | None = None) -> None:
        self._log = log
        self._skip = skip
        self.start = start
        self._good = 0
        self.records = 0
        self.last = 0
        self.log_end = 0
        self.stop = start
        self.covered = 0
        self.fuzzy = False
        self.reason = ""
        self.trailing_wrong: list[int] = []
        self.heap = 0

    def __iter__(self) -> Iterator[Scanned]:
        number, position = split_instant(self.start)
        if number not in self._log.files:
            raise ScanFailureError(self.start, f"log file {number} does not exist")
        file = self._log.files[number]
        check_header(file, make_instant(number, 0))
        position = self._skipped(file, position)
        while (found := self._next(file, position)) is not None:
            if isinstance(found, LogBytes):
                file, position = found, self._skipped(found, HEADER_SIZE)
                continue
            yield from self._returned(found)
            position = found.envelope.end
        self._settle_end()

    def _skipped(self, file: LogBytes, position: int) -> int:
        """Take a run of plain records at once; return the offset after it."""
        run = self._skip(file, position) if self._skip is not None else None
        if run is None or run.end <= position:
            return position
        self._good = make_instant(file.number, run.end)
        self.records += run.records
        if run.records:
            self.last = make_instant(file.number, run.last)
            self.log_end = make_instant(file.number, run.last_end)
        if run.covered:
            self.covered = make_instant(file.number, run.covered)
        return run.end

    def _returned(self, found: Scanned) -> Iterator[Scanned]:
        if found.envelope.trailing > found.envelope.length:
            self.trailing_wrong.append(self._good)
        if found.group & Group.CHECKSUM:
            return
        self.records += 1
        self.last = found.envelope.instant
        self.log_end = self._good
        yield found

    def _settle_end(self) -> None:
        """Move the end into an empty last file: writing continues there."""
        if self._good >> 32 > self.log_end >> 32:
            self.log_end = self._good

    def _next(self, file: LogBytes, position: int) -> Scanned | LogBytes | None:
        """Return the record at ``position``, the next file, or None at the end."""
        self.stop = make_instant(file.number, position)
        if position + LENGTH.size > file.size:
            self._note_end(position != file.size, "the file ends here")
            return None
        length = LENGTH.unpack_from(file.data, position)[0]
        if length == 0:
            return self._next_file(file.number + 1)
        # A negative length passes this test in the engine, too, and fails later: see `_record`.
        if position + length + LOG_RECORD_FIXED_OVERHEAD_SIZE > file.size:
            self._note_end(True, "the record's length reaches beyond the file")
            return None
        return self._record(file, position, length)

    def _note_end(self, fuzzy: bool, reason: str) -> None:
        self.fuzzy = fuzzy
        self.reason = reason

    def _next_file(self, number: int) -> LogBytes | None:
        file = self._log.files.get(number)
        if file is None:
            self._note_end(False, ENDS_IN_ZEROS)
            return None
        place = make_instant(number, 0)
        check_header(file, place)
        if file.size < HEADER_SIZE:
            raise ScanFailureError(place, "the header is cut short")
        if HEADER.unpack_from(file.data)[3] != self._good:
            self._note_end(False, f"log file {number} is not linked to the end of this one")
            return None
        self._good = make_instant(number, HEADER_SIZE)
        self.stop = self._good
        if file.size <= HEADER_SIZE + LENGTH.size:
            self._note_end(False, f"log file {number} is empty")
            return None
        return file

    def _record(self, file: LogBytes, position: int, length: int) -> Scanned | None:
        place = make_instant(file.number, position)
        if position + PREFIX.size > file.size:
            raise ScanFailureError(place, "the file ends inside the instant")
        instant = PREFIX.unpack_from(file.data, position)[1]
        # A larger one passes, as the engine does not notice it (format, The forward scan).
        if instant < self._good:
            self._note_end(True, "the instant is smaller than the end reached")
            return None
        if length < 0:
            raise ScanFailureError(place, f"the record's length is {length}")
        trailing = LENGTH.unpack_from(file.data, position + PREFIX.size + length)[0]
        envelope = Envelope(position, length, instant, trailing)
        group, clear = self._peek(file.number, envelope, place)
        if trailing < length:
            self._note_end(True, "the trailing length is smaller than the leading one")
            return None
        if not self._log.sealed and _names_nothing(clear):
            raise ScanFailureError(place, "the log record has no format id")
        self._good = make_instant(file.number, envelope.end)
        if group & Group.CHECKSUM and not self._checksum_holds(file, envelope, clear, place):
            self._note_end(True, "the checksum of the group differs")
            return None
        return Scanned(file.number, envelope, group, clear)

    def _peek(
        self, number: int, envelope: Envelope, place: int
    ) -> tuple[Group, bytes | memoryview]:
        if self._log.sealed:
            return Group(0), self._log.raw(number, envelope)
        try:
            clear = self._log.clear(number, envelope)
            return Group(0) if _names_nothing(clear) else decode_group(clear)[0], clear
        except LogFormatError as error:
            raise ScanFailureError(place, str(error)) from error

    def _checksum_holds(
        self, file: LogBytes, envelope: Envelope, clear: bytes | memoryview, place: int
    ) -> bool:
        try:
            body = decode_operation(clear)
        except LogFormatError as error:
            raise ScanFailureError(place, str(error)) from error
        if body.operation != CHECKSUM_OPERATION:
            raise ScanFailureError(place, f"a checksum record holds operation {body.operation}")
        size = body.fields["dataLength"]
        # Before all else, as the engine allocates an array of this size before it looks at the
        # file.
        if size < 0 or size > ARRAY_MAX:
            raise ScanFailureError(place, f"the checksum record covers {size} bytes")
        if envelope.end + size > file.size:
            self.heap = place if size > HEAP_SURE else 0
            return False
        if body.fields["checksumAlgo"] != CHECKSUM_CRC32:
            algorithm = body.fields["checksumAlgo"]
            raise ScanFailureError(place, f"unknown checksum algorithm {algorithm}")
        actual = crc32(file.data[envelope.end : envelope.end + size])
        if actual != body.fields["checksumValue"]:
            return False
        self.covered = make_instant(file.number, envelope.end + size)
        return True


def _names_nothing(clear: bytes | memoryview) -> bool:
    """Return whether a record holds the format id of no object, which the engine reads as null."""
    return bytes(clear[: len(NULL_FORMAT)]) == NULL_FORMAT


def scanned_range(log: LogFiles, start: int, skip: Skip | None = None) -> tuple[int, int]:
    """Return ``start`` and the instant at which a scan from there stops or fails."""
    scan = ForwardScan(log, start, skip)
    try:
        for _ in scan:
            pass
    except ScanFailureError:
        pass
    return start, scan.stop


def check_header(file: LogBytes, place: int) -> None:
    """Raise `ScanFailureError` if the engine refuses the file for its format id or number."""
    if file.size < HEADER_CHECKED_SIZE:
        raise ScanFailureError(place, f"log file {file.number} has only {file.size} bytes")
    number = int.from_bytes(file.data[8:16], signed=True)
    if int.from_bytes(file.data[:4]) != LOG_FILE or number != file.number:
        raise ScanFailureError(place, f"XSLAC: the header of log file {file.number} is wrong")
