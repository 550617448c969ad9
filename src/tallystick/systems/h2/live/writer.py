"""The writing end of a live log: records in groups, group by group onto fresh pages.

In: records from any thread; those that nobody waits for ride with the next one that somebody
does. Out: pages in the file, durable when the ticket is done. Every group begins a data page and
ends one, so that no page with acknowledged records is written again, except by the in-doubt
resolution, which the format wants in place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tallystick.roles import Ticket
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.writer import GroupWriter
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import VariableHeader
from tallystick.systems.h2.live.page_file import PageStoreFile
from tallystick.systems.h2.live.page_output import LogOutput

SECTOR_SIZE = 512
"""What a disk writes whole or not at all."""
RIDERS_BYTES = 1 << 15
"""So much of what nobody waits for is handed to the group writer without waiting for company."""


@dataclass(frozen=True, slots=True)
class Item:
    """A record on its way to the disk that is more than its bytes.

    ``alone``: it gets a data page of its own, ``last``: it is the last of its page; ``placed``
    is told the page (of a lone record: its own; else the one that the next record begins).
    ``action`` runs when everything before it is written, and may write and sync by itself.
    """

    record: bytes
    alone: bool = False
    last: bool = False
    placed: Callable[[int], None] | None = None
    action: Callable[[], None] | None = None


class LogWriter:
    """Writes one log, from a fresh first trunk page on, with a key above ``key``."""

    def __init__(
        self,
        store: PageStoreFile,
        *,
        key: int,
        batch: int,
        exclude: Collection[int],
        at_end: bool,
    ) -> None:
        self.store = store
        above = store.page_count - 1 if at_end else 0
        self.first_trunk = store.allocate(above, exclude)
        self.output = LogOutput(
            store, key + 1, self.first_trunk, batch=batch, exclude=exclude, above=above
        )
        self._gate = self.output.page
        """The data page that begins what is written next."""
        self.written = 0
        """Trunk and data pages of the log that were written."""
        self._items = 0
        self._groups: GroupWriter[Item | bytes] = GroupWriter(
            self.write, store.sync, name=store.path
        )
        self._order = threading.Lock()
        self._riders: list[bytes] = []
        self._riding = 0

    @property
    def counters(self) -> GroupCounters:
        """Groups, items that somebody waits for, bytes and syncs so far."""
        return self._groups.counters

    def put(self, record: bytes) -> None:
        """Queue a record that becomes durable with whatever is submitted next."""
        with self._order:
            self._riders.append(record)
            self._riding += len(record)
            if self._riding > RIDERS_BYTES:
                data = self._take_riders()
                self._groups.submit(data, len(data), sync=False)

    def submit(self, item: Item | bytes) -> Ticket:
        """Queue an item; it is durable when the ticket is done, as is all that was put before."""
        with self._order:
            if isinstance(item, bytes):
                data = self._take_riders() + item
                return self._groups.submit(data, len(data))
            if self._riders:
                data = self._take_riders()
                self._groups.submit(data, len(data), sync=False)
            return self._groups.submit(item, len(item.record))

    def _take_riders(self) -> bytes:
        riders, self._riders, self._riding = self._riders, [], 0
        return b"".join(riders)

    def write(self, items: list[Item | bytes]) -> Sequence[int]:
        """Write one group; the numbers returned count items."""
        output = self.output
        plain: list[bytes] = []
        for item in items:
            if isinstance(item, bytes):
                plain.append(item)
                continue
            output.put(b"".join(plain))
            plain = []
            self._put_item(item)
        output.put(b"".join(plain))
        output.fill_page()
        self.put_pages()
        first, self._items = self._items, self._items + len(items)
        return range(first, self._items)

    def _put_item(self, item: Item) -> None:
        output = self.output
        if item.alone:
            output.fill_page()
        page = output.page
        output.put(item.record)
        if item.alone or item.last:
            output.fill_page()
        if item.placed is not None:
            item.placed(page if item.alone else output.page)
        if item.action is not None:
            output.fill_page()
            self.put_pages()
            item.action()

    def put_pages(self) -> None:
        """Write the pages that are full, as one: the format has no checksum that would show a
        page torn in the middle, so the first sector of the first page, without which the stream
        ends there, is written when everything behind it is durable."""
        pages = self.output.take()
        self.written += len(pages)
        gate, self._gate = self._gate, self.output.page
        head = pages.pop(gate, b"")
        if pages or any(head[SECTOR_SIZE:]):
            if head:
                pages[gate] = bytes(len(head[:SECTOR_SIZE])) + head[SECTOR_SIZE:]
            self.store.write_pages(pages)
            self.store.sync()
        if head:
            self.store.write_start(gate, head[:SECTOR_SIZE])

    def start(self) -> None:
        """Make what was written durable and point the headers to it."""
        self.put_pages()
        output = self.output
        trunk = output.trunks[0]
        self.store.write_header(VariableHeader(0, trunk.key, trunk.page, output.first_data))

    def replace(self, page: int, record: bytes) -> Ticket:
        """Write a record over the one that stands alone on a data page of this log."""
        return self.submit(Item(b"", action=lambda: replace_record(self.store, page, record)))

    def remove_before(self, page: int) -> None:
        """Free the trunks before the one that lists data page ``page``, which begins a section,
        and let the log begin there.

        FREE_LOG is not logged: these pages were never marked in the free list on disk, so redo
        may have given them to a table by the time it would come to that record, and free them."""
        self.submit(b"").wait()
        trunks = self.output.trunks
        count = next(at for at, trunk in enumerate(trunks) if page in trunk.data_pages)
        self.submit(Item(b"", action=lambda: self._drop(count, page))).wait()

    def _drop(self, count: int, page: int) -> None:
        dropped = self.output.drop_trunks(count)
        kept = self.output.trunks[0]
        self.store.write_header(VariableHeader(0, kept.key, kept.page, page))
        freed = [one for trunk in dropped for one in (trunk.page, *trunk.data_pages)]
        self.store.release(freed)
        self.written -= len(freed)

    def close(self) -> None:
        """Flush and stop; the log stays in the file."""
        with self._order:
            riders = self._take_riders()
        if riders and not self._groups.poisoned:
            self._groups.submit(riders, len(riders))
        self._groups.close()


def replace_record(store: PageStoreFile, page: int, record: bytes) -> None:
    """Overwrite what stands on a data page, keeping its trunk and key. Where both records are
    shorter than a sector the page is the old one or the new, whatever is torn."""
    trunk, key = layout.decode_data_header(store.read_page(page))
    store.write_pages({page: layout.encode_data(page, trunk, key, record, store.page_size)})
