"""What is damaged in the headers of a page store, as its other bytes prove that it was.

In: a page store file. Out: patches of page 0, of which the page size follows from the pages after
it, and of the copies of the variable header, of which one proves the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tallystick.storage.crc import crc32
from tallystick.storage.source import open_source
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.read.files import open_file
from tallystick.systems.h2.reader import H2Reading
from tallystick.systems.protocol import LogSource, Patch, ReadOptions

_FIRST, _SECOND = layout.VARIABLE_HEADER_PAGES
_CRC = struct.Struct(">I")
_SIZES = [1 << bits for bits in range(16) if layout.valid_page_size(1 << bits)]


def patches(source: LogSource, options: ReadOptions) -> Iterator[Patch]:
    """Yield what mends the headers of a file; nothing of one that is encrypted or in parts.

    Raises:
        LogUnreadableError: it cannot be read.
    """
    if len(source.files) != 1:
        return
    path = source.files[0]
    with open_source(path) as opened:
        data = opened.data
        head = bytes(data[: layout.STATIC_HEADER.size])
        sizes = [] if layout.is_encrypted(head) else [s for s in _SIZES if any(_copies(data, s))]
        size = int.from_bytes(head[layout.PAGE_SIZE_OFFSET :][:4], "big")
        if size not in sizes:
            if len(sizes) != 1:
                return
            size = sizes[0]
        found = [*_static_header(path, head, size), *_copies_mended(path, data, size)]
        if not found and (other := _log_bearing(source, options)):
            why = f"the copy in page {other} leads to a log with commits, the one in use to none"
            page = bytes(data[other * size : (other + 1) * size])
            found = [Patch(path, (_FIRST + _SECOND - other) * size, page, why)]
    yield from found


def _static_header(path: str, head: bytes, size: int) -> Iterator[Patch]:
    """Yield the file header anew if its text or its page size is wrong."""
    text, whole = layout.MAGIC * 3, layout.encode_static_header(layout.StaticHeader(size))
    end = layout.PAGE_SIZE_OFFSET + 4
    if head[: len(text)] != text or head[len(text) : end] != whole[len(text) : end]:
        why = f"a header with a right CRC-32 stands at page 1 or 2 if a page has {size} bytes"
        yield Patch(path, 0, whole[: layout.STATIC_HEADER.size], f"{why}, and no other size")


def _copies(data: memoryview, size: int) -> list[bytes]:
    """Return pages 1 and 2 as the CRC-32 of either proves them; empty where none does."""
    pages = [bytes(data[at * size : (at + 1) * size]) for at in (_FIRST, _SECOND)]
    if len(pages[1]) < size:
        return [b"", b""]
    proved = [page if layout.decode_variable_header(page) else b"" for page in pages]
    if any(proved):
        return proved
    # Damage may have hit the sum in one copy and the rest in the other.
    for one, other in (pages, pages[::-1]):
        if _CRC.pack(crc32(other[_CRC.size :])) == one[: _CRC.size]:
            return [one[: _CRC.size] + other[_CRC.size :]] * 2
    return proved


def _copies_mended(path: str, data: memoryview, size: int) -> Iterator[Patch]:
    """Yield the copies of the variable header that are damaged, as the other one proves them."""
    first, second = _copies(data, size)
    truth = first or second  # the engine goes by the first one
    other = f"page {_FIRST if first else _SECOND}"
    why = "the CRC-32 of one copy fits the rest of the other" if first == second else (
        f"the copy in {other} has a right CRC-32, this one has not"
    )  # fmt: skip
    for at, proved in ((_FIRST, first), (_SECOND, second)):
        page = bytes(data[at * size : (at + 1) * size])
        if (not proved or first == second) and page != truth:
            yield Patch(path, at * size, truth, why)


def _log_bearing(source: LogSource, options: ReadOptions) -> int:
    """Return the page of the copy with the log that the one in use drops; 0 where it drops none."""
    if all(one.code != "header-drops-log" for one in H2Reading(source, options).findings()):
        return 0
    with open_source(source.files[0]) as opened:
        file = open_file(opened, options)
        return 0 if file.other is None else _FIRST + _SECOND - file.used_copy
