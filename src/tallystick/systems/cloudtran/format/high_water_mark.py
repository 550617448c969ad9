"""The line of ``<base>.mark``: the numbers in use, and which blocks have to be there.

In: the bytes of the file. Out: a `HighWaterMark`, and back. The line is text: greatest serial,
sequence and transaction number, the sequence from which on blocks are kept, and the CRC-32 of the
text before it. Marks of earlier versions do not say what is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.storage.crc import crc32

SUFFIX = ".mark"
_NAMES = (b"serial", b"sequence", b"number", b"kept")
_OLD_NAMES = _NAMES[:3]


@dataclass(frozen=True, slots=True)
class HighWaterMark:
    """What a log has used, and what it has kept.

    Attributes:
        serial: the greatest serial of a file.
        sequence: the greatest sequence of a block that was durable then.
        number: the greatest number of a transaction.
        kept: sequence of the first block in a file that was not offered for disposal; all from
            there to ``sequence`` have to be in the log. 0 where it is not known.
    """

    serial: int = 0
    sequence: int = 0
    number: int = 0
    kept: int = 0


def encode_mark(mark: HighWaterMark) -> bytes:
    """Return the line."""
    text = f"serial {mark.serial} sequence {mark.sequence} number {mark.number} kept {mark.kept} "
    return f"{text}{crc32(text.encode()):08x}\n".encode()


def decode_mark(data: bytes) -> HighWaterMark | None:
    """Return the mark; None if the bytes are not one."""
    text, _, checksum = data.rstrip(b"\n").rpartition(b" ")
    words = text.split()
    numbers = words[1::2]
    if f"{crc32(text + b' '):08x}".encode() != checksum:
        return None
    if tuple(words[::2]) not in (_NAMES, _OLD_NAMES) or not all(map(bytes.isdigit, numbers)):
        return None
    return HighWaterMark(*map(int, numbers))
