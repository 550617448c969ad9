"""The log stream: which data pages make up the log, why it ends, where its bytes are in the file.

In: the bytes of a page store file. Out: `PageFile` (pages by number), `walk_trunks` (the chain of
trunk pages as recovery follows it) and `open_stream`, a `LogStream`. Every way to end is quiet, as
in the engine. Source: docs/formats/h2.md, "Trunk and data pages".
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import repeat

from tallystick.errors import CorruptLogError
from tallystick.storage.mapped import let_go
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import StaticHeader, Trunk, VariableHeader
from tallystick.systems.runs import pay_here

AT_ONCE = 1 << 9
"""Pages that are looked at in one go: of no more than `mapped.NEAR` bytes as a rule."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A page store file as pages. ``file`` is its path, for messages."""

    file: str
    data: memoryview
    static: StaticHeader

    @property
    def page_size(self) -> int:
        """Bytes per page."""
        return self.static.page_size

    @property
    def page_count(self) -> int:
        """Whole pages; a trailing fragment is none."""
        return len(self.data) // self.static.page_size

    @property
    def free_lists(self) -> range:
        """The pages of the free list."""
        return layout.free_lists(self.page_count, self.page_size)

    def page(self, page_id: int) -> memoryview:
        """Return the bytes of a page that exists."""
        start = page_id * self.page_size
        return self.data[start : start + self.page_size]

    def exists(self, page_id: int) -> bool:
        """Return True if the file has a whole page of that number."""
        return 0 <= page_id < self.page_count

    def is_blank(self, page_id: int) -> bool:
        """Return True if a page that exists is all zeros, as one is that was never written."""
        return not bytes(self.page(page_id)).strip(b"\0")

    def is_reserved(self, page_id: int) -> bool:
        """Return True for a page that no log has: of headers, page index or free list."""
        of_list = layout.place_in_list(page_id, self.page_size)[1] == 0
        return 0 <= page_id <= layout.META_ROOT or (page_id > 0 and of_list)

    def types(self) -> bytes:
        """Return the first byte of every page."""
        found, size = [], AT_ONCE * self.page_size
        whole = self.data[: self.page_count * self.page_size]
        for begin in range(0, len(whole), size):
            # The whole file is gone through: without this the process would count as holding all of
            # it.
            let_go(self.data, begin)
            found.append(bytes(whole[begin : begin + size : self.page_size]))
        return b"".join(found)

    def of_type(self, kind: int) -> Iterator[int]:
        """Yield the numbers of the pages of a type, ascending."""
        types = self.types()
        at = types.find(kind)
        while at >= 0:
            yield at
            at = types.find(kind, at + 1)

    def headers(self) -> tuple[VariableHeader | None, ...]:
        """Return both copies of the variable header, None for one that is damaged or missing."""
        return tuple(
            layout.decode_variable_header(self.page(page)) if self.exists(page) else None
            for page in layout.VARIABLE_HEADER_PAGES
        )


# -- trunk pages ----------------------------------------------------------------------------


class TrunkEnd(StrEnum):
    """Why the walk over trunk pages ended."""

    NO_NEXT = "no further trunk page is named"
    OUTSIDE = "the next trunk page lies outside the file"
    CYCLE = "the chain returns to one of its own pages"
    CHECKSUM = "the next trunk page has a wrong checksum"
    EMPTY = "the next trunk page is empty"
    NOT_A_TRUNK = "the next page is not a trunk page"
    WRONG_PREVIOUS = "the next trunk page names another one before it"
    WRONG_KEY = "the next trunk page has another log key"


@dataclass(slots=True)
class TrunkChain:
    """The trunk pages of a log in order, why the walk ended and at which page."""

    trunks: list[Trunk] = field(default_factory=list)
    end: TrunkEnd = TrunkEnd.NO_NEXT
    end_page: int = 0

    def listed(self) -> Iterator[tuple[int, int]]:
        """Yield log key and number of every data page that is listed, written or not."""
        for trunk in self.trunks:
            for page in trunk.data_pages:
                yield trunk.key, page


def walk_trunks(pages: PageFile, first: int, key: int) -> TrunkChain:
    """Follow the chain from page ``first``, whose log key is ``key``.

    It ends for any input: keys grow by one and a page names its predecessor.

    Raises:
        CorruptLogError: a trunk page lists more pages than fit.
    """
    chain = TrunkChain()
    following, previous = first, 0
    while True:
        chain.end_page = following
        if chain.trunks and following == first:
            chain.end = TrunkEnd.CYCLE
            return chain
        found = _next_trunk(pages, following, previous, key + len(chain.trunks))
        if isinstance(found, TrunkEnd):
            looped = any(trunk.page == following for trunk in chain.trunks)
            chain.end = TrunkEnd.CYCLE if looped else found
            return chain
        chain.trunks.append(found)
        previous, following = following, found.next


def _next_trunk(pages: PageFile, page_id: int, previous: int, key: int) -> Trunk | TrunkEnd:
    """Return the trunk on a page; where it is none that follows ``previous`` with this key, why."""
    if page_id == 0:
        return TrunkEnd.NO_NEXT
    if not pages.exists(page_id):
        return TrunkEnd.OUTSIDE
    page = pages.page(page_id)
    if not layout.checksum_ok(page, page_id):
        return TrunkEnd.CHECKSUM
    if page[0] != layout.STREAM_TRUNK:
        return TrunkEnd.EMPTY if page[0] == layout.EMPTY else TrunkEnd.NOT_A_TRUNK
    try:
        trunk = layout.decode_trunk(page, page_id)
    except CorruptLogError as error:
        error.file = pages.file
        raise
    if trunk.key != key:
        return TrunkEnd.WRONG_KEY
    return trunk if previous <= 0 or trunk.previous == previous else TrunkEnd.WRONG_PREVIOUS


def whole_trunks(pages: PageFile) -> Iterator[Trunk]:
    """Yield the trunk pages of all logs, by their numbers; damaged ones are left out."""
    for page_id in pages.of_type(layout.STREAM_TRUNK):
        if layout.checksum_ok(pages.page(page_id), page_id):
            with suppress(CorruptLogError):
                yield layout.decode_trunk(pages.page(page_id), page_id)


# -- data pages -----------------------------------------------------------------------------


class DataFault(StrEnum):
    """Why a page is no data page of this log."""

    OUTSIDE = "it lies outside the file"
    CHECKSUM = "its checksum is wrong"
    EMPTY = "it is empty"
    NOT_DATA = "it is not a log data page"
    WRONG_KEY = "it has another log key"
    REPEATED = "trunk pages list more data pages than the file has pages"


def data_fault(pages: PageFile, page_id: int, key: int) -> DataFault | None:
    """Return why a page is no data page with this log key; None if it is one."""
    if not pages.exists(page_id):
        return DataFault.OUTSIDE
    page = pages.page(page_id)
    if not layout.checksum_ok(page, page_id):
        return DataFault.CHECKSUM
    if page[0] == layout.EMPTY:
        return DataFault.EMPTY
    if page[0] != layout.STREAM_DATA:
        return DataFault.NOT_DATA
    return None if layout.decode_data_header(page)[1] == key else DataFault.WRONG_KEY


@dataclass(slots=True)
class LogStream:
    """The data pages that make up the log, in stream order, and how the stream ends.

    ``end_key`` and ``end_of_file`` are what the engine's own reader holds then: the key it
    expects, and whether it noticed the end itself (false: an error ended it).
    """

    pages: PageFile
    chain: TrunkChain
    data_pages: list[int]
    """Numbers of the data pages of the log; the stream is their bodies, one after the other."""
    dropped: list[int] = field(default_factory=list)
    """Data pages listed before the first one of the log: dropped sections."""
    after_end: list[int] = field(default_factory=list)
    """Data pages listed after the one that ended the stream."""
    fault: DataFault | None = None
    fault_page: int = 0
    end_key: int = 0
    end_of_file: bool = True
    lost: dict[int, None] = field(default_factory=dict)
    """Data pages of this log that the engine does not read though they were written, so that the
    log was longer once: those after its end, and the damaged page that ended it, if it still says
    that it is one of them. A dict, as a set that keeps the order of the stream."""
    misnamed: str = ""
    """Why the header that names this log cannot be right; empty where it can."""
    skip: int = 0
    """Stream bytes before the offset where a scan begins."""

    @property
    def body_size(self) -> int:
        """Stream bytes per data page."""
        return self.pages.page_size - layout.DATA_START

    @property
    def ends_unwritten(self) -> bool:
        """True where the page that the log would go on with was never written.

        It is in the file, and zero, or has what stood there before.
        """
        if self.fault is DataFault.EMPTY or (
            self.fault is None and self.chain.end is TrunkEnd.EMPTY
        ):
            return self.pages.is_blank(
                self.chain.end_page if self.fault is None else self.fault_page
            )
        if self.fault is not None:
            return self.fault in (DataFault.NOT_DATA, DataFault.WRONG_KEY)
        return self.chain.end in (TrunkEnd.NOT_A_TRUNK, TrunkEnd.WRONG_KEY)

    @property
    def size(self) -> int:
        """Bytes of the stream."""
        return len(self.data_pages) * self.body_size

    def place(self, position: int) -> tuple[int, int]:
        """Return the page of a stream byte, and the offset in the page.

        Of the end of the stream it is the first byte of the page that ended the stream.
        """
        index, rest = divmod(position, self.body_size)
        page = self.data_pages[index] if index < len(self.data_pages) else self.fault_page
        return page, rest + layout.DATA_START

    def file_offset(self, position: int) -> int:
        """Return the byte offset in the file of a stream byte."""
        page, offset = self.place(position)
        return page * self.pages.page_size + offset

    def is_damaged(self, page: int) -> bool:
        """Return True for the page that ended the stream by its checksum."""
        return self.fault is DataFault.CHECKSUM and page == self.fault_page

    def bodies(self, first: int, count: int) -> bytes:
        """Return the stream bytes of ``count`` data pages, from number ``first`` on."""
        page_of, ids = self.pages.page, self.data_pages[first : first + count]
        return b"".join(page_of(page)[layout.DATA_START :] for page in ids)

    def raw(self, start: int, length: int) -> bytes:
        """Return ``length`` bytes of the stream from ``start`` on."""
        first, at = divmod(start, self.body_size)
        last = (start + length - 1) // self.body_size
        return self.bodies(first, last - first + 1)[at : at + length]


def open_stream(pages: PageFile, header: VariableHeader) -> LogStream:
    """Follow the log that ``header`` names.

    Raises:
        CorruptLogError: a trunk page lists more pages than fit.
    """
    chain = walk_trunks(pages, header.first_trunk, header.log_key)
    listed = [page for trunk in chain.trunks for page in trunk.data_pages]
    start, misnamed = len(listed), _misnamed(chain, header)
    if header.first_data in listed:
        start, misnamed = listed.index(header.first_data), ""
    stream = LogStream(
        pages,
        chain,
        data_pages=[],
        dropped=listed[:start],
        end_key=header.log_key + len(chain.trunks),
        misnamed=misnamed,
    )
    _follow(stream, listed, start)
    return stream


def _follow(stream: LogStream, listed: list[int], start: int) -> None:
    """Find the data pages of the log, why they end, and which pages are lost after the end.

    Args:
        stream: takes what is found.
        listed: the data pages that its trunks list.
        start: the number among these of the first one of the log.
    """
    keys = array("q")
    for trunk in stream.chain.trunks:
        keys.extend(repeat(trunk.key, len(trunk.data_pages)))
    at = start + _whole_pages(stream.pages, keys[start:], listed[start:])
    stream.data_pages = listed[start:at]
    if at < len(listed):
        key, page = keys[at], listed[at]
        # A page without a fault ends the stream only where more are listed than the file has.
        fault = data_fault(stream.pages, page, key) or DataFault.REPEATED
        stream.fault, stream.fault_page, stream.end_key = fault, page, key
        stream.end_of_file = fault not in (DataFault.OUTSIDE, DataFault.CHECKSUM)
        stream.after_end = listed[at + 1 :]
        if fault is DataFault.CHECKSUM and _was_written(stream.pages, page, key):
            stream.lost[page] = None
        for one, other in zip(keys[at + 1 :], stream.after_end, strict=True):
            if data_fault(stream.pages, other, one) is None:
                stream.lost[other] = None
        return
    for page in _pages_of_trunk(stream.pages, stream.chain.end_page, stream.end_key):
        stream.lost[page] = None
    if stream.chain.end in _NEVER_LEFT and stream.chain.trunks:
        for key, page in _listed_after(stream.pages, stream.chain.trunks[-1].page, stream.end_key):
            if data_fault(stream.pages, page, key) is None:
                stream.lost[page] = None


_NEVER_LEFT = (TrunkEnd.CYCLE, TrunkEnd.OUTSIDE)
"""Ends that no writer leaves: the next trunk page is a new one, allocated in the file."""


def _misnamed(chain: TrunkChain, header: VariableHeader) -> str:
    """Return why the header's numbers lead to no log; it names none where both pages are 0."""
    if not header.first_trunk and not header.first_data:
        return ""
    if not chain.trunks:
        return f"trunk page {header.first_trunk}, log key {header.log_key}: {chain.end}"
    return f"no trunk page of the log lists its first data page {header.first_data}"


def _listed_after(pages: PageFile, last: int, key: int) -> Iterator[tuple[int, int]]:
    """Yield log key and number of every data page that is listed by trunks after page ``last``.

    Trunks that name it as the one before them, with this log key, are looked for in the whole file:
    its own field leads elsewhere.
    """
    for trunk in whole_trunks(pages):
        if (trunk.previous, trunk.key) == (last, key):
            with suppress(CorruptLogError):
                yield from walk_trunks(pages, trunk.page, key).listed()


def _was_written(pages: PageFile, page_id: int, key: int) -> bool:
    """Return True if a damaged page still says that it is a data page of this log."""
    page = pages.page(page_id)
    return page[0] == layout.STREAM_DATA and layout.decode_data_header(page)[1] == key


def _whole_pages(pages: PageFile, keys: array[int], listed: list[int]) -> int:
    """Return how many of the listed pages, from the first, are whole data pages of the log.

    At most as many as the file has pages.
    """
    known, most = 0, min(len(listed), pages.page_count)
    compiled = pay_here(most * pages.page_size)
    while compiled and known < most:
        let_go(pages.data, listed[known] * pages.page_size)
        some = slice(known, min(known + AT_ONCE, most))
        known += (whole := _count_whole(pages, keys[some], listed[some]))
        compiled = whole == some.stop - some.start
    while known < most and data_fault(pages, listed[known], keys[known]) is None:
        known += 1
    return known


def _count_whole(pages: PageFile, keys: array[int], ids: list[int]) -> int:
    """Return how many of the pages, from the first, are whole data pages with their keys."""
    import numpy as np

    from tallystick.systems.h2.format.page_kernels import count_whole_pages

    data = np.frombuffer(pages.data, dtype=np.uint8)
    arrays = np.array(ids, np.int64), np.array(keys, np.int64)
    return int(count_whole_pages(data, *arrays, pages.page_size))


def _pages_of_trunk(pages: PageFile, trunk: int, key: int) -> list[int]:
    """Return the whole data pages that name this trunk page and log key, looking at every page.

    So pages are found that are listed by a trunk page which cannot be read any more.
    """
    if trunk <= 0:
        return []
    return [
        page
        for page in pages.of_type(layout.STREAM_DATA)
        if layout.decode_data_header(pages.page(page)) == (trunk, key)
        and layout.checksum_ok(pages.page(page), page)
    ]
