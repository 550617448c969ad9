"""The log stream: which data pages make up the log, why it ends, where its bytes stand in the file.

In: the pages of a file and the chain of trunk pages. Out: `open_stream`, a `LogStream`. Every way
to end is quiet, as in the engine. Source: the PageLog description, section b.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from tallystick.arrow.numba_kernel import pays
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import VariableHeader
from tallystick.systems.h2.read.page_chain import PageFile, TrunkChain, walk_trunks

COMPILED_FROM = 8192
"""Listed data pages from which on it pays to load the compiler for the test of their headers."""
LOADED_FROM = 256
"""The same where the compiler is loaded already."""


class DataFault(StrEnum):
    """Why a page is no data page of this log."""

    OUTSIDE = "it lies outside the file"
    CHECKSUM = "its checksum is wrong"
    EMPTY = "it is empty"
    NOT_DATA = "it is not a log data page"
    WRONG_KEY = "it has another log key"
    REPEATED = "trunk pages list more data pages than the file has pages"


def data_fault(pages: PageFile, page_id: int, key: int) -> DataFault | None:
    """What keeps a page from being a data page with this log key; None if it is one."""
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
    expects, and whether it noticed the end itself (false: an error told it).
    """

    pages: PageFile
    chain: TrunkChain
    data_pages: list[int]
    passed: list[int]
    """Data pages listed before the first one of the log: dropped sections."""
    behind: list[int]
    """Data pages listed behind the one that ended the stream."""
    fault: DataFault | None
    fault_page: int
    end_key: int
    end_of_file: bool
    lost: dict[int, None] = field(default_factory=dict)
    """Data pages of this log behind its end, in stream order, and the damaged one that ended it
    if it can be told for one: they were written, so the log was longer once."""
    skip: int = 0
    """Stream bytes before the place where a scan begins (a part read on its own)."""

    @property
    def body_size(self) -> int:
        """Stream bytes per data page."""
        return self.pages.page_size - layout.DATA_START

    @property
    def size(self) -> int:
        """Bytes of the stream."""
        return len(self.data_pages) * self.body_size

    def place(self, position: int) -> tuple[int, int]:
        """Page and offset in it of a stream byte; the end of a page names the next one."""
        index, rest = divmod(position, self.body_size)
        page = self.data_pages[index] if index < len(self.data_pages) else self.fault_page
        return page, rest + layout.DATA_START

    def file_offset(self, position: int) -> int:
        """Byte offset in the file of a stream byte."""
        page, offset = self.place(position)
        return page * self.pages.page_size + offset

    def is_damaged(self, page: int) -> bool:
        """True for the page that ended the stream by its checksum."""
        return self.fault is DataFault.CHECKSUM and page == self.fault_page

    def bodies(self, first: int, count: int) -> bytes:
        """Stream bytes of ``count`` data pages, the first one being number ``first``."""
        return join_bodies(self.pages, self.data_pages[first : first + count])


def join_bodies(pages: PageFile, ids: list[int]) -> bytes:
    """The stream bytes of these data pages, one after the other."""
    return b"".join(pages.page(page)[layout.DATA_START :] for page in ids)


def open_stream(pages: PageFile, header: VariableHeader) -> LogStream:
    """The log that ``header`` names. Raises `CorruptLogError` as `walk_trunks` does."""
    chain = walk_trunks(pages, header.first_trunk, header.log_key)
    listed = list(_listed(chain))
    start = next((at for at, (_, page) in enumerate(listed) if page == header.first_data), None)
    if start is None:
        start = len(listed)
    stream = LogStream(
        pages,
        chain,
        data_pages=[],
        passed=[page for _, page in listed[:start]],
        behind=[],
        fault=None,
        fault_page=0,
        end_key=header.log_key + len(chain.trunks),
        end_of_file=True,
    )
    _follow(stream, listed, start)
    return stream


def _listed(chain: TrunkChain) -> Iterator[tuple[int, int]]:
    for trunk in chain.trunks:
        for page in trunk.data_pages:
            yield trunk.key, page


def _follow(stream: LogStream, listed: list[tuple[int, int]], start: int) -> None:
    at = start + _whole_pages(stream.pages, listed[start : start + stream.pages.page_count])
    stream.data_pages = [page for _, page in listed[start:at]]
    if at < len(listed):
        key, page = listed[at]
        fault = data_fault(stream.pages, page, key) or DataFault.REPEATED
        stream.fault, stream.fault_page, stream.end_key = fault, page, key
        stream.end_of_file = fault not in (DataFault.OUTSIDE, DataFault.CHECKSUM)
        stream.behind = [page for _, page in listed[at + 1 :]]
        if fault is DataFault.CHECKSUM and _was_written(stream.pages, page, key):
            stream.lost[page] = None
        for one, other in listed[at + 1 :]:
            if data_fault(stream.pages, other, one) is None:
                stream.lost[other] = None
        return
    for page in pages_of_trunk(stream.pages, stream.chain.end_page, stream.end_key):
        stream.lost[page] = None


def _was_written(pages: PageFile, page_id: int, key: int) -> bool:
    """True if a damaged page still says that it is a data page of this log."""
    page = pages.page(page_id)
    return page[0] == layout.STREAM_DATA and layout.decode_data_header(page)[1] == key


def _whole_pages(pages: PageFile, listed: list[tuple[int, int]]) -> int:
    """How many of the listed pages, from the first, are whole data pages of the log."""
    known = 0
    if pays(len(listed), LOADED_FROM, COMPILED_FROM):
        known = _whole_pages_compiled(pages, listed)
    for key, page in listed[known:]:
        if data_fault(pages, page, key) is not None:
            break
        known += 1
    return known


def _whole_pages_compiled(pages: PageFile, listed: list[tuple[int, int]]) -> int:
    try:
        import numpy as np
    except ImportError:
        return 0
    from tallystick.systems.h2.columns.page_kernels import first_fault

    table = np.array(listed, dtype=np.int64)
    data = np.frombuffer(pages.data, dtype=np.uint8)
    count: int = first_fault(data, table[:, 1].copy(), table[:, 0].copy(), pages.page_size)
    return count


def pages_of_trunk(pages: PageFile, trunk: int, key: int) -> list[int]:
    """Whole data pages that name this trunk page and log key, found by looking at every page:
    for a trunk page that cannot be read any more."""
    if trunk <= 0:
        return []
    kinds = bytes(pages.data[: pages.page_count * pages.page_size : pages.page_size])
    return [
        page
        for page, kind in enumerate(kinds)
        if kind == layout.STREAM_DATA
        and layout.decode_data_header(pages.page(page)) == (trunk, key)
        and layout.checksum_ok(pages.page(page), page)
    ]
