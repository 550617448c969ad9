"""The writer of a live log: records into groups, groups onto fresh data pages.

In: records from any thread; those without a waiting caller are written with the next one that has
one. Out: pages in the file, durable when the ticket is done. Every group begins a data page and
ends one, so that no page with acknowledged records is written again, except by the decision of
an in-doubt transaction, which the format requires in place.

A trunk page lists a whole batch of data pages in advance and names the next trunk, so that no
page that was written is written again either.
Source: docs/formats/h2.md, "Trunk and data pages".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tallystick.roles import Ticket
from tallystick.storage.files import SECTOR
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.group.writer import GroupWriter
from tallystick.storage.signals import uninterrupted
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import Trunk, VariableHeader
from tallystick.systems.h2.live.files import PageStoreFile

DEFERRED_BYTES = 1 << 15
"""Bytes of records without a waiting caller that are submitted to the group writer at once."""


@dataclass(frozen=True, slots=True)
class Item:
    """A record to be written, with rules for where.

    Attributes:
        record: its bytes.
        alone: it gets a data page of its own.
        last: it is the last record of its page.
        placed: called with the page: of a record alone its own, else the one that the next record
            begins.
        action: called when everything before it is written; it may write and sync by itself.
    """

    record: bytes
    alone: bool = False
    last: bool = False
    placed: Callable[[int], None] | None = None
    action: Callable[[], None] | None = None


class LogOutput:
    """The pages of one log being written; they are collected until `take`.

    Args:
        store: allocates the pages.
        key: log key of the first trunk page, ``first_trunk``.
        first_trunk: a page that is allocated already.
        batch: data pages listed per trunk (the engine: as many as fit).
        exclude: pages that hold table data under undo.
        above: a page number that log pages must exceed.
    """

    def __init__(
        self,
        store: PageStoreFile,
        key: int,
        first_trunk: int,
        *,
        batch: int,
        exclude: Collection[int] = (),
        above: int = 0,
    ) -> None:
        self.store = store
        self.trunks: list[Trunk] = []
        self._exclude = exclude
        self._above = above
        self._batch = batch
        self._next_trunk = first_trunk
        self._next_key = key
        self._listed: deque[int] = deque()
        self._body = bytearray()
        self._pages: dict[int, bytes] = {}
        self._add_trunk()
        self.first_data = self._page = self._take_page()

    @property
    def body_size(self) -> int:
        """Stream bytes per page."""
        return self.store.page_size - layout.DATA_START

    @property
    def page(self) -> int:
        """The data page that the next byte goes to."""
        return self._page

    @property
    def key(self) -> int:
        """Log key of the newest trunk."""
        return self.trunks[-1].key

    @property
    def page_ids(self) -> list[int]:
        """Every page that belongs to the log: trunks, listed data pages, the next trunk."""
        return [self._next_trunk, *(page for trunk in self.trunks for page in trunk.pages)]

    def put(self, record: bytes) -> None:
        """Append a record; full pages are closed as soon as a byte follows."""
        self._body += record
        while len(self._body) > self.body_size:
            self._close_page(bytes(self._body[: self.body_size]))
            del self._body[: self.body_size]

    def fill_page(self) -> None:
        """Pad the current page with no-ops, so that the next record begins a page."""
        if self._body:
            self._close_page(bytes(self._body))
            self._body.clear()

    def take(self) -> dict[int, bytes]:
        """Return the pages closed since the last call, to be written now."""
        pages, self._pages = self._pages, {}
        return pages

    def drop_trunks(self, count: int) -> list[Trunk]:
        """Remove and return the oldest trunks; the caller frees their pages."""
        dropped, self.trunks = self.trunks[:count], self.trunks[count:]
        return dropped

    def _close_page(self, body: bytes) -> None:
        trunk = self.trunks[-1]
        sealed = layout.encode_data(self._page, trunk.page, trunk.key, body, self.store.page_size)
        self._pages[self._page] = sealed
        self._page = self._take_page()

    def _take_page(self) -> int:
        if not self._listed:
            self._add_trunk()
        return self._listed.popleft()

    def _add_trunk(self) -> None:
        page = self._next_trunk
        previous = self.trunks[-1].page if self.trunks else page
        ids: list[int] = []
        for _ in range(self._batch + 1):
            # Each above the one before, as the engine does; low numbers are used again first.
            ids.append(self.store.allocate(ids[-1] if ids else self._above, self._exclude))
        self._listed = deque(ids[:-1])
        self._next_trunk = ids[-1]
        trunk = Trunk(page, previous, self._next_key, self._next_trunk, tuple(self._listed))
        self._next_key += 1
        self.trunks.append(trunk)
        self._pages[page] = layout.encode_trunk(trunk, self.store.page_size)
        if self.store.holds_trunk(self._next_trunk):
            # A trunk that was left there would be looked at as the next one of this log.
            self._pages[self._next_trunk] = bytes(self.store.page_size)


class LogWriter(Uncopied):
    """Writes one log, from its first trunk page on, with a key above ``key``.

    ``first_trunk`` is a page that is marked as used.
    """

    def __init__(
        self,
        store: PageStoreFile,
        *,
        key: int,
        batch: int,
        exclude: Collection[int],
        at_end: bool,
        first_trunk: int,
    ) -> None:
        self.store = store
        self.first_trunk = first_trunk
        above = first_trunk if at_end else 0
        self.output = LogOutput(
            store, key + 1, first_trunk, batch=batch, exclude=exclude, above=above
        )
        self._first_page = self.output.page
        """The data page that begins what is written next."""
        self.written = 0
        """Trunk and data pages of the log that were written."""
        self._items = 0
        self._groups: GroupWriter[Item | bytes] = GroupWriter(
            self.write, store.sync, name=store.path
        )
        self._order = OwnedLock(nested_call_error)
        self._deferred: list[bytes] = []
        self._deferred_bytes = 0

    @property
    def counters(self) -> GroupCounters:
        """Groups, items with a waiting caller, bytes and syncs so far."""
        return self._groups.counters

    def put(self, record: bytes) -> None:
        """Queue a record that becomes durable with whatever is submitted next."""
        with uninterrupted, self._order:
            self._deferred.append(record)
            self._deferred_bytes += len(record)
            if self._deferred_bytes > DEFERRED_BYTES:
                data = self._take_deferred()
                self._groups.submit(data, len(data), sync=False)

    def submit(self, item: Item | bytes) -> Ticket:
        """Queue an item; it is durable when the ticket is done, as is all that was put before."""
        with uninterrupted, self._order:
            if isinstance(item, bytes):
                data = self._take_deferred() + item
                return self._groups.submit(data, len(data))
            if self._deferred:
                data = self._take_deferred()
                self._groups.submit(data, len(data), sync=False)
            return self._groups.submit(item, len(item.record))

    def _take_deferred(self) -> bytes:
        deferred, self._deferred, self._deferred_bytes = self._deferred, [], 0
        return b"".join(deferred)

    def write(self, items: list[Item | bytes]) -> Sequence[int]:
        """Write one group; return the numbers of its items."""
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
        """Write the pages that are full, atomically.

        The format has no checksum that would reveal a page torn in the middle. So the first sector
        of the first page, without which the stream ends there, is written when everything after
        it is durable.
        """
        pages = self.output.take()
        self.written += len(pages)
        first, self._first_page = self._first_page, self.output.page
        head = pages.pop(first, b"")
        if pages or any(head[SECTOR:]) or (head and self.store.holds_after(first, SECTOR)):
            if head:
                pages[first] = bytes(len(head[:SECTOR])) + head[SECTOR:]
            self.store.write_pages(pages)
            self.store.sync()
        if head:
            self.store.write_start(first, head[:SECTOR])

    def start(self) -> None:
        """Make what was written durable and point the headers to it."""
        self.put_pages()
        output = self.output
        trunk = output.trunks[0]
        self.store.write_header(VariableHeader(0, trunk.key, trunk.page, output.first_data))

    def replace(self, page: int, record: bytes) -> Ticket:
        """Write a record over the one that is alone on a data page of this log."""
        return self.submit(Item(b"", action=lambda: replace_record(self.store, page, record)))

    def remove_before(self, page: int) -> None:
        """Let the log begin at data page ``page``, which begins a section; free the trunks before.

        FREE_LOG is not logged: the free list never marks these pages, so recovery cannot restore
        a mark. It would do harm: redo may have given such a page to a table before that record.
        """
        self.submit(b"").wait()
        trunks = self.output.trunks
        count = next(at for at, trunk in enumerate(trunks) if page in trunk.data_pages)
        self.submit(Item(b"", action=lambda: self._drop(count, page))).wait()

    def _drop(self, count: int, page: int) -> None:
        """Free the first ``count`` trunks, when the headers let the log begin at ``page``."""
        dropped = self.output.drop_trunks(count)
        kept = self.output.trunks[0]
        self.store.write_header(VariableHeader(0, kept.key, kept.page, page))
        freed = [one for trunk in dropped for one in trunk.pages]
        self.store.release(freed)
        self.written -= len(freed)

    def close(self) -> None:
        """Flush and stop; the log stays in the file."""
        with uninterrupted, self._order:
            deferred = self._take_deferred()
        if deferred and not self._groups.poisoned:
            self._groups.submit(deferred, len(deferred))
        self._groups.close()


def replace_record(store: PageStoreFile, page: int, record: bytes) -> None:
    """Overwrite the stream bytes of a data page, keeping its trunk and key.

    Where both records are shorter than a sector a torn write leaves the old page or the new one.
    """
    trunk, key = layout.decode_data_header(store.read_page(page))
    store.write_pages({page: layout.encode_data(page, trunk, key, record, store.page_size)})
