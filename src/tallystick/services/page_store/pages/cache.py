"""Pages in memory: a bounded cache over the page file, with undo before every first change.

In: page numbers and nodes. Out: nodes, and pages written in place whenever it suits. Before
the first change of a page since the last checkpoint its old image goes to the undo log, and
before a changed page is written in place that image is durable.

The cache holds decoded nodes; `edit` is the only way to change one. What nodes are is the
`Codec`'s affair. All methods are called under the store's latch, except `write_back`, which
takes it for moments.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from tallystick.roles import Codec, Ticket
from tallystick.storage.files import File

_WRITE_BYTES = 1 << 20
"""Bytes of pages that a checkpoint encodes and writes at once."""


class UndoLog(Protocol):
    """What the cache needs of an undo/redo log."""

    def add_undo(self, page: int, image: bytes | None) -> None: ...

    def flush(self) -> Ticket: ...


@dataclass(slots=True)
class PageCache:
    """Nodes by page number, least recently used first.

    ``capacity`` counts pages; it is exceeded by changed pages that must not be written now,
    and by what one operation touches until it calls `trim`. Without ``steal`` (while recovery
    runs) nothing is written in place.
    """

    file: File
    log: UndoLog
    capacity: int
    codec: Codec
    steal: bool = True
    nodes: OrderedDict[int, Any] = field(default_factory=OrderedDict)
    dirty: set[int] = field(default_factory=set)
    logged: set[int] = field(default_factory=set)
    """Pages whose image as of the last checkpoint is in the undo log."""
    writing: dict[int, bytes | None] = field(default_factory=dict)
    """Pages that a checkpoint has still to write; with its image if the page changed since."""
    held: bool = False
    """True while the pages in place must not change."""
    sections: int = 0
    """Sections of the log that were begun."""
    limit: int = 0
    """Pages from which on `trim` tries again."""

    def get(self, number: int) -> Any:
        """The node of a page; not to be changed. Raises `CorruptLogError`."""
        node = self.nodes.get(number)
        if node is None:
            node = self.nodes[number] = self._read(number)
        else:
            self.nodes.move_to_end(number)
        return node

    def edit(self, number: int) -> Any:
        """The node of a page, to be changed: its old image is in the undo log."""
        node = self.get(number)
        self._log_image(number, node)
        self.dirty.add(number)
        return node

    def log_image(self, number: int) -> None:
        """Let the undo log have the page as of the last checkpoint, though it may not change."""
        if number not in self.logged:
            self._log_image(number, self.get(number))

    def put(self, number: int, node: Any) -> None:
        """A node for a page that held another kind, or nothing."""
        old = self.nodes.get(number)
        if number not in self.logged:
            self._log_image(number, self._old_node(number) if old is None else old)
        self.nodes[number] = node
        self.dirty.add(number)

    @property
    def is_full(self) -> bool:
        """True if `trim` has something to try."""
        return len(self.nodes) > self.capacity and len(self.nodes) > self.limit

    def trim(self) -> None:
        """Make room. Called where nobody holds a node: a change to one let go would be lost."""
        if not self.is_full:
            return
        # An eighth more than needed: the images of all of them become durable by one sync.
        step = len(self.nodes) - self.capacity + self.capacity // 8
        victims = list(islice(self._victims(), step))
        # Where most pages have to stay, looking for others is not tried again at once.
        self.limit = len(self.nodes) + self.capacity // 8 if len(victims) < step else 0
        if changed := sorted(self.dirty.intersection(victims)):
            encode = self.codec.encode
            pages = {number: encode(number, self.nodes[number]) for number in changed}
            self.log.flush().wait()
            self._write(pages)
            self.dirty.difference_update(changed)
        for number in victims:
            del self.nodes[number]

    def _victims(self) -> Iterator[int]:
        """Pages that may go, least recently used first."""
        fixed = self.held or not self.steal
        for number in self.nodes:
            if number not in self.writing and not (fixed and number in self.dirty):
                yield number

    def hold(self, held: bool) -> None:
        """Whether the pages in place must stay as they are, once they are written back."""
        self.held = held
        self.limit = 0

    def start_writing(self) -> None:
        """Every changed page is to be written as it is now; from here on a new section is
        logged."""
        self.writing = dict.fromkeys(sorted(self.dirty))
        self.dirty.clear()
        self.logged.clear()
        self.sections += 1

    def write_back(self, latch: AbstractContextManager[object]) -> None:
        """Write the pages of `start_writing` in place, neighbours together, and sync."""
        encode, at_once = self.codec.encode, _WRITE_BYTES // self.codec.page_size
        while self.writing:
            with latch:
                some = list(islice(self.writing.items(), at_once))
                pages = {n: image or encode(n, self.nodes[n]) for n, image in some}
            self._write(pages)
            with latch:
                for number in pages:
                    del self.writing[number]
        self.limit = 0
        self.file.datasync()

    def _write(self, pages: dict[int, bytes]) -> None:
        for first, run in _runs(pages):
            self.file.pwritev(run, first * self.codec.page_size)

    def _read(self, number: int) -> Any:
        return self.codec.decode(number, self._page(number))

    def _page(self, number: int) -> bytes:
        size = self.codec.page_size
        return self.file.pread(size, number * size)

    def _old_node(self, number: int) -> Any:
        """What a page held that is not in memory; None where it was never written."""
        page = self._page(number)
        return self.codec.decode(number, page) if page.strip(b"\0") else None

    def _log_image(self, number: int, node: Any) -> None:
        if number not in self.logged:
            self.logged.add(number)
            image = None if node is None else self.codec.encode(number, node)
            if number in self.writing:
                self.writing[number] = image  # as of the checkpoint: what it has to write
            self.log.add_undo(number, image)


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
