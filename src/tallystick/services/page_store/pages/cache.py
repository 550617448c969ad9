"""A bounded cache of pages, with an undo image before the first change of each.

In: page numbers and nodes. Out: nodes, and changed pages written in place, at any time. Before the
first change of a page since the last checkpoint its old image goes to the undo log, and before a
changed page is written in place that image is durable.

The cache holds nodes as its `Codec` decodes them; `edit` is the only way to change one. All methods
are called under the store's latch, except `write_back`, which takes it for moments.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from tallystick.errors import LogWriteError
from tallystick.roles import Codec, Ticket
from tallystick.storage.files import File
from tallystick.storage.opening import needing_space
from tallystick.storage.signals import uninterrupted
from tallystick.storage.source import unreadable

_WRITE_BYTES = 1 << 20
"""Bytes of pages that a checkpoint encodes and writes at once."""


class UndoLog(Protocol):
    """The part of an undo/redo log that the cache needs."""

    def add_undo(self, page: int, image: bytes | None) -> None:
        """Log the image of a page as of the last checkpoint."""
        ...

    def flush(self) -> Ticket:
        """Return a ticket that is done when every image is durable."""
        ...


@dataclass(slots=True)
class PageCache:
    """Nodes by page number, least recently used first.

    ``capacity`` counts pages. Changed pages that must not be written now exceed it, and so do
    the pages of an operation until it calls `trim`. Without ``steal`` (while recovery runs)
    nothing is written in place.
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
    """Pages that a checkpoint has still to write, each with its image if it changed since."""
    held: bool = False
    """True while the pages in place must not change."""
    sections: int = 0
    """Sections of the log that were started."""
    limit: int = 0
    """Number of pages above which `trim` tries again."""

    def new_mark(self) -> int:
        """Put a mark into the pages for the section that begins next; 0 if they have no place."""
        return 0

    def get(self, number: int) -> Any:
        """Return the node of a page, not to be changed. Raises `CorruptLogError`."""
        node = self.nodes.get(number)
        if node is None:
            node = self.nodes[number] = self._read(number)
        else:
            self.nodes.move_to_end(number)
        return node

    def edit(self, number: int) -> Any:
        """Log the page's image, mark the page as changed, and return its node."""
        node = self.get(number)
        self.change(number, node)
        return node

    def change(self, number: int, node: Any) -> None:
        """Log the page's image and mark the page as changed; ``node`` is what `get` returned."""
        if number not in self.logged:
            self._log_image(number, node)
        self.dirty.add(number)

    def log_image(self, number: int) -> None:
        """Log the page's image as of the last checkpoint; the page need not change."""
        if number not in self.logged:
            self._log_image(number, self.get(number))

    def put(self, number: int, node: Any) -> None:
        """Replace the node of a page, which held another kind, or nothing."""
        old = self.nodes.get(number)
        if number not in self.logged:
            self._log_image(number, self._old_node(number) if old is None else old)
        self.nodes[number] = node
        self.dirty.add(number)

    @property
    def is_full(self) -> bool:
        """True if `trim` may find pages to evict."""
        return len(self.nodes) > self.capacity and len(self.nodes) > self.limit

    def trim(self) -> None:
        """Evict pages above the capacity.

        Called when no caller holds a node: a change to an evicted node would be lost.
        """
        if not self.is_full:
            return
        # An eighth more than needed: one sync makes the images of all of them durable.
        step = len(self.nodes) - self.capacity + self.capacity // 8
        victims = list(islice(self._victims(), step))
        # If most pages have to stay, do not search again at once.
        self.limit = len(self.nodes) + self.capacity // 8 if len(victims) < step else 0
        if changed := sorted(self.dirty.intersection(victims)):
            encode = self.codec.encode
            pages = {number: encode(number, self.nodes[number]) for number in changed}
            try:
                self.log.flush().wait()
                self._write(pages)
            except LogWriteError:  # there is no room: they stay in memory until there is
                self.limit = len(self.nodes) + self.capacity // 8
                return
            self.dirty.difference_update(changed)
        for number in victims:
            del self.nodes[number]

    def _victims(self) -> Iterator[int]:
        """Yield pages that may be evicted, least recently used first."""
        fixed = self.held or not self.steal
        for number in self.nodes:
            if number not in self.writing and not (fixed and number in self.dirty):
                yield number

    def hold(self, held: bool) -> None:
        """Keep the pages in place as they are after `write_back`, or allow changes again."""
        self.held = held
        self.limit = 0

    def start_writing(self) -> None:
        """Schedule every changed page, as it is now, for `write_back`; a new section starts."""
        self.writing = dict.fromkeys(sorted(self.dirty))
        self.dirty.clear()
        self.logged.clear()
        self.sections += 1

    def write_back(
        self,
        latch: AbstractContextManager[object],
        required: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Write the pages of `start_writing` in place, adjacent ones together, and sync.

        Args:
            latch: The store's latch.
            required: Guards a step. Between two steps the call may be interrupted; another one
                goes on then.

        Raises:
            LogFullError: there is no room for them; another call goes on.
        """
        encode, at_once = self.codec.encode, _WRITE_BYTES // self.codec.page_size
        while self.writing:
            with uninterrupted, required():
                with latch:
                    some = list(islice(self.writing.items(), at_once))
                    pages = {n: image or encode(n, self.nodes[n]) for n, image in some}
                self._write(pages)
                with latch:
                    for number in pages:
                        del self.writing[number]
        with uninterrupted, required():
            self.limit = 0
            self.file.datasync()

    def _write(self, pages: dict[int, bytes]) -> None:
        with needing_space(self.file.path, "changed pages"):
            for first, run in _runs(pages):
                self.file.pwritev(run, first * self.codec.page_size)

    def _read(self, number: int) -> Any:
        return self.codec.decode(number, self._page(number))

    def _page(self, number: int) -> bytes:
        size = self.codec.page_size
        try:
            return self.file.pread(size, number * size)
        except OSError as error:
            raise unreadable(self.file.path, error) from error

    def _old_node(self, number: int) -> Any:
        """Return the node on disk of a page that is not in memory; None if never written."""
        page = self._page(number)
        return self.codec.decode(number, page) if page.strip(b"\0") else None

    def _log_image(self, number: int, node: Any) -> None:
        if number not in self.logged:
            self.logged.add(number)
            image = None if node is None else self.codec.encode(number, node)
            if number in self.writing:
                self.writing[number] = image  # as of the checkpoint, which has to write it
            self.log.add_undo(number, image)


def _runs(pages: dict[int, bytes]) -> Iterable[tuple[int, list[bytes]]]:
    """Yield runs of pages with adjacent numbers as (first number, pages)."""
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
