"""The pages of a file, and the walk over trunk pages.

In: the bytes of a page store file. Out: `PageFile` (pages by number) and `walk_trunks`: the chain
of trunk pages as recovery follows it, and why it ends. Every way to end is quiet, as in the engine.
Source: the PageLog description, section b.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tallystick.errors import CorruptLogError
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import StaticHeader, Trunk, VariableHeader


@dataclass(frozen=True, slots=True)
class PageFile:
    """A page store file as pages. ``file`` is its path, for messages."""

    file: str
    data: memoryview
    static: StaticHeader

    @property
    def page_size(self) -> int:
        return self.static.page_size

    @property
    def page_count(self) -> int:
        """Whole pages; a trailing fragment is none."""
        return len(self.data) // self.static.page_size

    def page(self, page_id: int) -> memoryview:
        """The bytes of a page that exists."""
        start = page_id * self.page_size
        return self.data[start : start + self.page_size]

    def exists(self, page_id: int) -> bool:
        return 0 <= page_id < self.page_count

    def headers(self) -> tuple[VariableHeader | None, ...]:
        """Both copies of the variable header, None for one that is damaged or missing."""
        return tuple(
            layout.decode_variable_header(self.page(page)) if self.exists(page) else None
            for page in layout.VARIABLE_HEADER_PAGES
        )


class TrunkEnd(StrEnum):
    """Why the walk over trunk pages ended."""

    NO_NEXT = "no further trunk page is named"
    OUTSIDE = "the next trunk page lies outside the file"
    CYCLE = "the chain returns to its first page"
    CHECKSUM = "the next trunk page has a wrong checksum"
    EMPTY = "the next trunk page is empty"
    NOT_A_TRUNK = "the next page is not a trunk page"
    WRONG_PREVIOUS = "the next trunk page names another one before it"
    WRONG_KEY = "the next trunk page has another log key"


@dataclass(slots=True)
class TrunkChain:
    """The trunk pages of a log in order, why the walk ended and at which page.

    ``removable``: the page where it ended is empty or a log page, so the engine would free it.
    """

    trunks: list[Trunk] = field(default_factory=list)
    end: TrunkEnd = TrunkEnd.NO_NEXT
    end_page: int = 0
    removable: bool = False
    end_trunk: Trunk | None = None
    """The trunk page that ended the walk by its key, previous field or place."""


def walk_trunks(pages: PageFile, first: int, key: int) -> TrunkChain:
    """Follow the chain from page ``first``, whose log key is ``key``. It ends in any case: keys
    grow by one and a page names its predecessor. Raises `CorruptLogError` for a trunk page that
    lists more pages than fit."""
    chain = TrunkChain()
    following, previous = first, 0
    while True:
        chain.end_page = following
        if chain.trunks and following == first:
            chain.end = TrunkEnd.CYCLE
            return chain
        trunk, end, chain.removable = _next_trunk(pages, following, previous)
        if trunk is not None and trunk.key != key + len(chain.trunks):
            end = TrunkEnd.WRONG_KEY
        if trunk is None or end is not None:
            chain.end = end or TrunkEnd.NO_NEXT
            chain.end_trunk = trunk
            return chain
        chain.trunks.append(trunk)
        previous, following = following, trunk.next


def _next_trunk(
    pages: PageFile, page_id: int, previous: int
) -> tuple[Trunk | None, TrunkEnd | None, bool]:
    if page_id == 0:
        return None, TrunkEnd.NO_NEXT, False
    if not pages.exists(page_id):
        return None, TrunkEnd.OUTSIDE, False
    page = pages.page(page_id)
    if not layout.checksum_ok(page, page_id):
        return None, TrunkEnd.CHECKSUM, False
    if page[0] == layout.EMPTY:
        return None, TrunkEnd.EMPTY, True
    if page[0] != layout.STREAM_TRUNK:
        return None, TrunkEnd.NOT_A_TRUNK, page[0] == layout.STREAM_DATA
    trunk = _decode_trunk(pages, page, page_id)
    if previous > 0 and trunk.previous != previous:
        return trunk, TrunkEnd.WRONG_PREVIOUS, True
    return trunk, None, True


def _decode_trunk(pages: PageFile, page: memoryview, page_id: int) -> Trunk:
    try:
        return layout.decode_trunk(page, page_id)
    except CorruptLogError as error:
        error.file = pages.file
        raise
