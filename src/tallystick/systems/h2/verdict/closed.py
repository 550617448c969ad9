"""Whether a file of which no header names a log is as closing the database leaves it.

In: the pages and the header in force. Out: what closing would have left otherwise, in words.
Closing frees the log, gives the header a higher key than any page of the log has, and cuts the file
after the last page that the free list says is in use. Source: ``PageStore.compact``. Empty pages
after that one, which our own copies have, hold nothing.
"""

from __future__ import annotations

from tallystick.errors import CorruptLogError
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import Type
from tallystick.systems.h2.format.layout import Trunk, VariableHeader
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read.salvage import salvaged
from tallystick.systems.h2.read.stream import PageFile


def not_closed(pages: PageFile, header: VariableHeader, zone: Zone) -> str:
    """Return what closing the database does not leave; empty if it may have been closed."""
    newer = [trunk.page for trunk in _trunks(pages) if trunk.key - header.log_key >= 0]
    last = _last_in_use(pages)
    rest = pages.types()[last + 1 :]
    if not newer and not rest.strip(bytes([layout.EMPTY])):
        return ""
    commits = sum(entry.code == Type.COMMIT for entry, *_ in salvaged(pages, None, zone))
    if newer:
        what = f"trunk page {newer[0]} is of a log with the key that the header has, or a later one"
    else:
        what = f"after page {last}, the last one in use, the file has pages that are not empty"
    return (
        f"No header names a log, but closing does not leave this: {what}. Pages of logs hold "
        f"{commits} commits, and which of them are in the tables is not known."
    )


def _trunks(pages: PageFile) -> list[Trunk]:
    found = []
    for page_id in pages.of_type(layout.STREAM_TRUNK):
        page = pages.page(page_id)
        if layout.checksum_ok(page, page_id):
            try:
                found.append(layout.decode_trunk(page, page_id))
            except CorruptLogError:
                continue
    return found


def _last_in_use(pages: PageFile) -> int:
    """Return the last page that the free list marks; -1 if it marks none."""
    marked = (pages.page_size - layout.FREE_LIST_START) * 8
    last = -1
    for first in range(layout.FREE_LIST_ROOT, pages.page_count, marked):
        page = pages.page(first)
        if page[0] == layout.FREE_LIST:
            bits = int.from_bytes(page[layout.FREE_LIST_START :], "little")
            last = first + bits.bit_length() - 1 if bits else last
    return last
