"""Pages in memory: a bounded cache over the page file, with undo before every first change.

In: page numbers and nodes. Out: nodes, and pages written in place whenever it suits. Before
the first change of a page since the last checkpoint its old image goes to the undo log, and
before a changed page is written in place that image is durable.

The cache holds decoded nodes; `edit` is the only way to change one. All methods are called
under the store's latch, except `write_back` and `sync`, which work on a snapshot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from tallystick.errors import CorruptLogError
from tallystick.services.page_store.layout import (
    PAGE_SIZE,
    Free,
    Meta,
    Node,
    decode,
    encode,
)
from tallystick.services.roles import Ticket
from tallystick.storage.files import File

META_PAGE = 0


class UndoLog(Protocol):
    """What the cache needs of an undo/redo log."""

    def add_undo(self, page: int, image: bytes | None) -> None: ...

    def flush(self) -> Ticket: ...


@dataclass(slots=True)
class PageCache:
    """Nodes by page number, least recently used first.

    ``capacity`` counts pages; it is exceeded while a checkpoint writes, and by what one
    operation touches until it calls `trim`. ``steal`` is false while recovery runs: nothing is
    written in place then.
    """

    file: File
    log: UndoLog
    capacity: int
    steal: bool = True
    nodes: OrderedDict[int, Node] = field(default_factory=OrderedDict)
    dirty: set[int] = field(default_factory=set)
    logged: set[int] = field(default_factory=set)
    """Pages whose image as of the last checkpoint is in the undo log."""
    busy_writing: bool = False
    """True while a checkpoint writes a snapshot: evicting now could be overwritten by it."""

    def get(self, number: int) -> Node:
        """The node of a page; not to be changed. Raises `CorruptLogError`."""
        node = self.nodes.get(number)
        if node is None:
            node = self.nodes[number] = self._read(number)
        else:
            self.nodes.move_to_end(number)
        return node

    def edit(self, number: int) -> Node:
        """The node of a page, to be changed: its old image is in the undo log."""
        node = self.get(number)
        self._log_image(number, node)
        self.dirty.add(number)
        return node

    def put(self, number: int, node: Node) -> None:
        """A node for a page that held another kind, or nothing."""
        old = self.nodes.get(number)
        if number not in self.logged:
            self._log_image(number, self._old_node(number) if old is None else old)
        self.nodes[number] = node
        self.dirty.add(number)

    @property
    def meta(self) -> Meta:
        node = self.get(META_PAGE)
        assert isinstance(node, Meta)
        return node

    def allocate(self, node: Node) -> int:
        """A page for ``node``: a free one, or a new one at the end of the file."""
        meta = self.edit(META_PAGE)
        assert isinstance(meta, Meta)
        number = meta.first_free
        if number:
            free = self.get(number)
            if not isinstance(free, Free):
                raise CorruptLogError(f"page {number} is in the list of free pages, but in use")
            meta.first_free = free.next
        else:
            number = meta.page_count
            meta.page_count += 1
            self.nodes.pop(number, None)
        self.put(number, node)
        return number

    def release(self, number: int) -> None:
        """Put a page on the list of free ones."""
        meta = self.edit(META_PAGE)
        assert isinstance(meta, Meta)
        self.put(number, Free(meta.first_free))
        meta.first_free = number

    def trim(self) -> None:
        """Make room. Called where nobody holds a node: a change to one let go would be lost."""
        if len(self.nodes) <= self.capacity or self.busy_writing or not self.steal:
            return
        # An eighth at once: the images of all of them become durable by one sync.
        victims = [n for n, _ in zip(self.nodes, range(self.capacity // 8 + 1), strict=False)]
        changed = {n: encode(n, self.nodes[n]) for n in sorted(victims) if n in self.dirty}
        if changed:
            self.log.flush().wait()
            for first, run in _runs(changed):
                self.file.pwritev(run, first * PAGE_SIZE)
        for number in victims:
            del self.nodes[number]
        self.dirty.difference_update(changed)

    def snapshot(self) -> dict[int, bytes]:
        """The pages to be written by a checkpoint; from here on a new section is logged."""
        pages = {number: encode(number, self.nodes[number]) for number in sorted(self.dirty)}
        self.dirty.clear()
        self.logged.clear()
        return pages

    def write_back(self, pages: dict[int, bytes]) -> None:
        """Write pages in place, neighbours together, and sync."""
        for first, run in _runs(pages):
            self.file.pwritev(run, first * PAGE_SIZE)
        self.file.datasync()

    def _read(self, number: int) -> Node:
        return decode(number, self.file.pread(PAGE_SIZE, number * PAGE_SIZE))

    def _old_node(self, number: int) -> Node | None:
        """What a page held that is not in memory; None where it was never written."""
        page = self.file.pread(PAGE_SIZE, number * PAGE_SIZE)
        return decode(number, page) if page.strip(b"\0") else None

    def _log_image(self, number: int, node: Node | None) -> None:
        if number not in self.logged:
            self.logged.add(number)
            self.log.add_undo(number, None if node is None else encode(number, node))


def _runs(pages: dict[int, bytes]) -> Iterable[tuple[int, list[bytes]]]:
    """Pages with neighbouring numbers as (first number, pages)."""
    run: list[bytes] = []
    first = 0
    for number, page in pages.items():
        if run and number != first + len(run):
            yield first, run
            run = []
        if not run:
            first = number
        run.append(page)
    if run:
        yield first, run
