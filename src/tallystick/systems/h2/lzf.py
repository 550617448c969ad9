"""LZF as the page log uses it for undo images: bounded expansion, and a compressor.

In: a compressed image and the page size. Out: exactly one page, or what the engine would have
made of a damaged one. A control byte below 32 is followed by that many literals plus one;
any other is a back-reference of length 3 to 264 at distance 1 to 8192.
Source: the PageLog description, section a.6.
"""

from __future__ import annotations

LITERALS_MAX = 32
DISTANCE_MAX = 8192
LENGTH_MAX = 264
_LONG = 7


class ExpansionError(Exception):
    """The image does not expand to one page; ``done`` bytes of it were written."""

    def __init__(self, reason: str, done: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.done = done


def expand_into(source: bytes | memoryview, out: bytearray, size: int) -> int:
    """Expand into the first ``size`` bytes of ``out``, byte for byte as the engine does; how many
    bytes of ``source`` that took.

    Like the engine it refuses a back-reference that ends exactly at the end of ``out`` (not of
    ``size``), and leaves what it has written. Raises `ExpansionError`; never writes more.
    """
    at = done = 0
    try:
        while done < size:
            control = source[at]
            at += 1
            if control < LITERALS_MAX:
                at, done = _literals(source, at, out, done, control + 1)
            else:
                at, done = _reference(source, at, out, done, control)
    except IndexError:
        raise ExpansionError("the compressed image ends too early", done) from None
    if done > size:
        raise ExpansionError("the image is longer than a page", done)
    return at


def _literals(
    source: bytes | memoryview, at: int, out: bytearray, done: int, count: int
) -> tuple[int, int]:
    if done + count > len(out):
        raise ExpansionError("literals run over the end of the page", done)
    piece = source[at : at + count]
    if len(piece) < count:
        raise IndexError
    out[done : done + count] = piece
    return at + count, done + count


def _reference(
    source: bytes | memoryview, at: int, out: bytearray, done: int, control: int
) -> tuple[int, int]:
    length = control >> 5
    if length == _LONG:
        length += source[at]
        at += 1
    length += 2
    distance = ((control & 31) << 8 | source[at]) + 1
    if distance > done:
        raise ExpansionError("a back-reference points before the page", done)
    if done + length >= len(out):
        raise ExpansionError("a back-reference ends at or behind the end of the page", done)
    for place in range(done, done + length):
        out[place] = out[place - distance]
    return at + 1, done + length


def compress(page: bytes) -> bytes:
    """An LZF form of ``page`` that every reader expands: its last byte is always a literal."""
    out = bytearray()
    latest: dict[bytes, int] = {}
    literal_start = at = 0
    last = len(page) - 1
    while at + 2 < last:
        sequence = page[at : at + 3]
        seen = latest.get(sequence, -1)
        latest[sequence] = at
        if seen < 0 or at - seen > DISTANCE_MAX:
            at += 1
            continue
        length = _match_length(page, seen, at, last)
        _put_literals(out, page, literal_start, at)
        _put_reference(out, at - seen, length)
        at += length
        literal_start = at
    _put_literals(out, page, literal_start, len(page))
    return bytes(out)


def _match_length(page: bytes, seen: int, at: int, last: int) -> int:
    length = 3
    limit = min(LENGTH_MAX, last - at)
    while length < limit and page[seen + length] == page[at + length]:
        length += 1
    return length


def _put_literals(out: bytearray, page: bytes, begin: int, end: int) -> None:
    for start in range(begin, end, LITERALS_MAX):
        piece = page[start : min(start + LITERALS_MAX, end)]
        out.append(len(piece) - 1)
        out += piece


def _put_reference(out: bytearray, distance: int, length: int) -> None:
    high, low = divmod(distance - 1, 256)
    if length - 2 < _LONG:
        out.append((length - 2) << 5 | high)
    else:
        out += bytes((_LONG << 5 | high, length - 2 - _LONG))
    out.append(low)
