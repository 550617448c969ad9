"""Whether the pages of a file fit what its header says of the log: closed, freed, or going on.

In: the pages and the header in force. Out: of a header that names no log, what closing would have
left otherwise, in words; of one whose log is gone, whether opening has freed it; of any other one,
a page of a later log.

Closing frees the log, gives the header a higher key than any page of the log has, and cuts the file
after the last page that the free list says is in use. Source: ``PageStore.compact``. Empty pages
after that one, which our own copies have, hold nothing.
"""

from __future__ import annotations

from tallystick.printable import counted
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import Trunk, VariableHeader
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read.salvage import salvaged
from tallystick.systems.h2.read.stream import (
    LogStream,
    PageFile,
    TrunkEnd,
    data_fault,
    whole_trunks,
)
from tallystick.systems.h2.verdict.losses import loss_of


def not_closed(pages: PageFile, header: VariableHeader, zone: Zone) -> str:
    """Return what the file has that closing does not leave; empty if it may have been closed.

    A log that no header names yet, and that has no pages, may be there: that of an opening which
    was interrupted.
    """
    # Closing gives the header a key above those of the log that it frees: no older page has it.
    newer = [trunk for trunk in whole_trunks(pages) if trunk.key >= header.log_key]
    last = _last_in_use(pages)
    rest = bytearray(pages.types()[last + 1 :])
    if begun := _begun(pages, header, newer):
        newer = []
        if begun.page > last:
            rest[begun.page - last - 1] = layout.EMPTY
    if not newer and not rest.strip(bytes([layout.EMPTY])):
        return ""
    commits = loss_of((part for part, _ in salvaged(pages, None, zone)), zone).commits
    if newer:
        what = (
            f"trunk page {newer[0].page} is of a log with the key that the header has, or a later "
            "one"
        )
    else:
        what = f"after page {last}, the last one in use, the file has pages that are not empty"
    return (
        f"No header names a log, but closing does not leave this: {what}. Pages of logs hold "
        f"{counted(commits, 'commit')}, and what of that is in the tables is not known."
    )


def is_freed(pages: PageFile, stream: LogStream, header: VariableHeader) -> bool:
    """Return True if nothing is left of the log that the header names.

    Opening a database frees the pages of its log, the first trunk page first, after redo and before
    the header names a new one. Source: ``PageStore.openForWriting``.
    """
    if stream.chain.trunks or stream.chain.end is not TrunkEnd.EMPTY or not header.first_trunk:
        return False
    if not pages.is_blank(header.first_trunk):
        return False
    return _page_from(pages, header, header.log_key) is None


def later_page(stream: LogStream, header: VariableHeader) -> int | None:
    """Return a page of a log that is later than all to which the header leads; None if none is.

    The engine goes on with one log until it names the next in the header. Keys only grow.
    """
    pages, chain = stream.pages, {trunk.page: trunk.key for trunk in stream.chain.trunks}
    newest = max(chain.values(), default=header.log_key)
    return _page_from(pages, header, newest + 1)


def _page_from(pages: PageFile, header: VariableHeader, key: int) -> int | None:
    """Return a page of a log with this key or a later one, but for a trunk that was only begun."""
    newer = [trunk for trunk in whole_trunks(pages) if trunk.key >= key]
    if newer and not _begun(pages, header, newer):
        return newer[0].page
    data = pages.of_type(layout.STREAM_DATA)
    return next((at for at in data if layout.decode_data_header(pages.page(at))[1] >= key), None)


def _begun(pages: PageFile, header: VariableHeader, newer: list[Trunk]) -> Trunk | None:
    """Return the only trunk page of a later log, of which no page is written yet."""
    if len(newer) != 1 or newer[0].key <= header.log_key:
        return None
    (trunk,) = newer
    written = (data_fault(pages, page, trunk.key) is None for page in trunk.data_pages)
    return None if any(written) else trunk


def _last_in_use(pages: PageFile) -> int:
    """Return the last page that the free list marks; -1 if it marks none."""
    last = -1
    for first in pages.free_lists:
        page = pages.page(first)
        if page[0] == layout.FREE_LIST:
            bits = int.from_bytes(page[layout.FREE_LIST_START :], "little")
            # The lowest bit of the first byte is the first page: the highest bit that is set is the
            # last one.
            last = first + bits.bit_length() - 1 if bits else last
    return last
