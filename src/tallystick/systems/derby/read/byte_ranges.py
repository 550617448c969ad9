"""Ranges of bytes of a log file and the records in them, one at a time.

In: a file, and where to look. Out: `Piece`s with decoded bodies; the chain of records by lengths
alone. What to make of them is for `walk` to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.errors import LogFormatError
from tallystick.records import Outcome
from tallystick.storage.crc import crc32
from tallystick.systems.derby.format.layout import (
    CHECKSUM_OPERATION,
    END_MARKER,
    HEADER_SIZE,
    LENGTH,
    Envelope,
    make_instant,
    read_envelope,
)
from tallystick.systems.derby.format.record_body import Body, decode_body
from tallystick.systems.derby.read.files import LogBytes, LogFiles, SealedBodyError


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
