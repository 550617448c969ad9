"""Ranges of bytes of a log file: what a scan found there, and the spans that are reported.

In: `ByteRange`s in order. Out: `Span`s, neighbours of one kind joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tallystick.records import Outcome, Span
from tallystick.systems.derby.format.layout import HEADER_SIZE, Envelope, make_instant
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.files import LogBytes


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A range of one file; a record if it has an envelope.

    Attributes:
        salvaged: whole, but the engine does not reach it.
        in_scan: a scan from the first file reaches it.
        checksum_valid: for checksum records, whether their group has the CRC.
        body: the decoded record; None if it is encrypted without a key, or undecodable.
        clear: the record's body, decrypted where the key is known.
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

    @property
    def is_believed(self) -> bool:
        """Whether it is whole and a restart uses it."""
        return self.outcome is Outcome.VALID and not self.salvaged

    @property
    def place(self) -> int:
        """The instant of its first byte."""
        return make_instant(self.file.number, self.offset)


_RECORDS = "records"


def run_range(file: LogBytes, end: int) -> ByteRange:
    """Return the records from the header to an offset as one range; they are valid."""
    return ByteRange(file, HEADER_SIZE, end - HEADER_SIZE, Outcome.VALID, _RECORDS)


def spans_of(ranges: Iterable[ByteRange]) -> Iterator[Span]:
    """Yield the spans of a file: neighbours of one kind as one, empty ranges left out."""
    current: Span | None = None
    for one in ranges:
        if not one.length:
            continue
        what = _RECORDS if one.envelope is not None else one.what
        kind = (one.outcome, what, one.reason)
        if current is not None and kind == (current.outcome, current.what, current.reason):
            current = Span(current.offset, current.length + one.length, *kind)
            continue
        if current is not None:
            yield current
        current = Span(one.offset, one.length, *kind)
    if current is not None:
        yield current
