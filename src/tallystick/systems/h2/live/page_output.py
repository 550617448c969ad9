"""The page streams of a live log: records into data pages, data pages into trunks.

In: encoded records. Out: pages, collected until `LogOutput.take` hands them over to be written.
A trunk lists a whole batch of data pages in advance and names the next trunk, so that no page
that was written is ever written again. Source: the PageLog description, section b.2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import Trunk
from tallystick.systems.h2.live.page_file import PageStoreFile


class LogOutput:
    """One log being written, from its first trunk page ``first_trunk`` with log key ``key``.

    ``batch`` data pages are listed per trunk (the engine: as many as fit). ``exclude`` are pages
    that hold table data under undo; ``above`` is a page number that log pages must exceed.
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
    def room(self) -> int:
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
        ids = [self._next_trunk]
        for trunk in self.trunks:
            ids += [trunk.page, *trunk.data_pages]
        return ids

    def put(self, record: bytes) -> None:
        """Append a record; full pages are closed as soon as a byte follows."""
        self._body += record
        while len(self._body) > self.room:
            self._close_page(bytes(self._body[: self.room]))
            del self._body[: self.room]

    def fill_page(self) -> None:
        """Pad the current page with no-ops, so that the next record begins a page."""
        if self._body:
            self._close_page(bytes(self._body))
            self._body.clear()

    def take(self) -> dict[int, bytes]:
        """The pages closed since the last call, to be written now."""
        pages, self._pages = self._pages, {}
        return pages

    def drop_trunks(self, count: int) -> list[Trunk]:
        """Forget the oldest trunks; the caller frees their pages."""
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
