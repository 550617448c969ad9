"""Rows of tables from the database's own files, as they were where its log begins.

In: a container's file (``seg0/c<N>.dat``) and all operations on it. Out: parts of rows by page and
record id. Pages are read when they are needed; what the log had already brought to a page is
taken back with the old images in the log, so memory grows with the rows that the log changes.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tallystick.errors import CorruptLogError, LogFormatError, LogUnreadableError
from tallystick.storage.crc import crc32
from tallystick.storage.source import (
    PACKINGS,
    ByteSource,
    open_source,
    read_part,
    source_size,
)
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import Cursor
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.layout import SEGMENT
from tallystick.systems.derby.format.page_rows import (
    FIELD_NONEXISTENT,
    FIELD_OVERFLOW,
    Field,
    Row,
    images_of,
    read_field,
    read_row,
    rows_of,
)
from tallystick.systems.derby.format.record_body import Body

Key = tuple[int, int]
"""Page and record id."""

CONTROL_ROW: Key = (1, 6)
"""Every table's first row, which describes the table itself."""

_INFO_AT, _INFO = 0x6C, struct.Struct(">Biii")
_INFO_HEAD = struct.Struct(">iii28xq")
"""Of the head of a container: format id, status, page size and version."""
_INFO_SIZE, _INFO_FORMAT = 80, 116
_INFO_WHOLE = 1 + _INFO_SIZE
_DROPPED, _COMMITTED_DROP = 1, 2
_EXTENT = struct.Struct(">16xqi28x")
"""Of the pages that an allocation page counts: the last that it can count, and how many there are;
then come, as long as a number of bits says, which of them are free."""
_BITS = struct.Struct(">i")
_TABLE_ID, _NUMBER, _IS_INDEX = 1, 2, 4
"""Columns of ``SYSCONGLOMERATES``."""
_LEAF = (133).to_bytes(2)
"""What the first row of an index page begins with, which describes the page, if it has rows."""
_LEFT, _RIGHT = 1, 2
"""Fields of that row."""
_ROOT, _NONE = 1, -1
"""The number of an index's first page, and what stands for no page."""
_PAGE = struct.Struct(">HxxBBqH")
_PAGE_FORMAT, _ALLOC_FORMAT, _VALID = 117, 118, 1
_SLOT = struct.Struct(">HHH")
_CHECKSUM_SIZE = 8
_DELETED = 1
_FACTORY, _HEAP = 15, 0
"""Bits of a container's number that tell what made it, and what they are for rows of tables."""
_CACHED = 64
_READ_AT_ONCE = 1 << 18
"""Bytes of pages near each other that are read at once."""


@dataclass(slots=True)
class Part:
    """A row, or what of it is on one page: its fields by column, and where it goes on."""

    fields: dict[int, Field]
    next: Key | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class StoredPage:
    """One page of a file; ``overflow`` if it holds continuations of rows only."""

    version: int
    overflow: bool
    parts: dict[int, Part]


def part_of(row: Row) -> Part:
    """Return a row image as a part, without columns that it leaves out."""
    fields = {
        column: one
        for column, one in enumerate(row.fields, row.first_field)
        if one.status & FIELD_NONEXISTENT != FIELD_NONEXISTENT
    }
    return Part(fields, row.overflow, bool(row.status & _DELETED))


def columns_of(part: Part, parts: Parts) -> dict[int, bytes | None]:
    """Return the columns of a row by number; those of which a part is not known are left out."""
    found: dict[int, bytes | None] = {}
    for one in _chain(part, parts):
        for column, value in one.fields.items():
            if not value.status & FIELD_OVERFLOW or value.data is None:
                found[column] = value.data
            elif (whole := _long_value(value, parts)) is not None:
                found[column] = whole
    return found


def continuations(part: Part) -> Iterator[Key]:
    """Yield where a row goes on, and its long values."""
    pointers = (part.next, *map(_pointer, part.fields.values()))
    return (key for key in pointers if key is not None)


def _chain(part: Part, parts: Parts) -> Iterator[Part]:
    seen = set[Key]()
    yield part
    while part.next is not None and part.next not in seen:
        seen.add(part.next)
        following = parts.part(part.next)
        if following is None:
            return
        yield following
        part = following


def _long_value(value: Field, parts: Parts) -> bytes | None:
    """Return a value that is cut into parts; None if one is not known."""
    pieces, seen, following = [], set[Key](), _pointer(value)
    while following is not None:
        part = parts.part(following)
        first = part.fields.get(0) if part is not None else None
        if part is None or first is None or first.data is None or following in seen:
            return None
        seen.add(following)
        pieces.append(first.data)
        rest = part.fields.get(1)
        following = None if rest is None else _pointer(rest)
    return b"".join(pieces)


def _pointer(value: Field) -> Key | None:
    if value.data is None or not value.status & FIELD_OVERFLOW:
        return None
    cursor = Cursor(value.data)
    return cursor.compressed_long(), cursor.compressed_int()


class Parts:
    """Parts of rows by page and record id."""

    def __init__(self) -> None:
        self.known: dict[Key, Part] = {}

    def part(self, key: Key) -> Part | None:
        """Return a part; None if it is not known."""
        return self.known.get(key)


class Container:
    """The pages of one container's file; none where the file is not there."""

    def __init__(self, source: ByteSource | None, cipher: LogCipher | None = None) -> None:
        self._source, self._cipher = source, cipher
        self._page_size = 0 if source is None else _page_size(source)
        self._cache: OrderedDict[int, StoredPage | None] = OrderedDict()
        self._versions: dict[int, int] = {}

    @property
    def numbers(self) -> range:
        """The numbers of the pages that may be there."""
        if self._source is None or not self._page_size:
            return range(0)
        return range(1, self._source.size // self._page_size)

    def page(self, number: int) -> StoredPage | None:
        """Return a page; None if there is none, or it is not used.

        Raises:
            CorruptLogError: it is damaged, or is being written.
        """
        if number not in self.numbers:
            return None
        if number in self._cache:
            self._cache.move_to_end(number)
        else:
            if len(self._cache) >= _CACHED:
                self._cache.popitem(last=False)
            self._cache[number] = self._read(number)
        return self._cache[number]

    def version(self, number: int) -> int:
        """Return the version of a page, 0 for one that is not there; raises as `page` does."""
        if number not in self._versions:
            page = self.page(number)
            self._versions[number] = 0 if page is None else page.version
        return self._versions[number]

    def _read(self, number: int) -> StoredPage | None:
        assert self._source is not None
        begin = number * self._page_size
        data = bytes(self._source.data[begin : begin + self._page_size])
        data = bytes(clear_page(data, number, self._cipher))
        kind, overflow, status, version, count = _PAGE.unpack_from(data)
        # An allocation page, or one that was given back: it holds no rows.
        if kind != _PAGE_FORMAT or status != _VALID:
            return None
        end = len(data) - _CHECKSUM_SIZE
        try:
            if crc32(memoryview(data)[:end]) != int.from_bytes(data[end:]):
                raise LogFormatError("a page has another checksum")
            rows = [
                read_row(Cursor(data[:end], _SLOT.unpack_from(data, end - slot * _SLOT.size)[0]))
                for slot in range(1, count + 1)
            ]
        except (LogFormatError, struct.error) as error:
            raise CorruptLogError(
                f"a page of the database cannot be read: {error}", file=self._source.path,
                offset=begin, advice="Read again, if the database is being written",
            ) from error  # fmt: skip
        return StoredPage(version, bool(overflow), {row.record_id: part_of(row) for row in rows})


@dataclass(slots=True)
class _Change:
    """What a row was before the log first changed it; None in ``fields``: there was none."""

    fields: dict[int, Field] | None = field(default_factory=dict)
    deleted: bool | None = None

    def keep(self, later: _Change) -> None:
        """Note what was before a later change, as far as it is not known already."""
        if self.fields is not None:
            # The earliest value of each field is that from before the log.
            self.fields = {**(later.fields or {}), **self.fields}
            self.deleted = later.deleted if self.deleted is None else self.deleted


_Noted = tuple[int, dict[int, _Change]]
"""A page, and what was before an operation on it, by record."""


def _nothing() -> None: ...


class Before(Parts):
    """The parts of a container's rows where the log begins.

    They are true once all operations on it were noted, in log order. Where a transaction began
    before the log and was rolled back in it, they are those from before the transaction.
    """

    def __init__(self, container: Container) -> None:
        super().__init__()
        self._container = container
        self._changes: dict[int, dict[int, _Change]] = {}
        self._open: dict[int | None, dict[int, _Noted]] = {}
        """By transaction and instant what may still be undone."""
        self.noted: Callable[[], None] = _nothing
        """Notes all operations, before the first part is asked for."""

    def note(self, body: Body, place: int) -> None:
        """Note an operation on the container, and its instant."""
        number: int = body.fields["pageId"].number
        version = self._container.version(number)
        # The page in the file does not have this change yet: nothing to take back.
        if body.fields["pageVersion"] >= version:
            return
        open_ones = self._open.setdefault(body.transaction, {})
        if body.undo is not None:
            # The page has both. The old values of what is undone may be the transaction's own.
            open_ones.pop(body.undo, None)
        elif found := _old(body):
            open_ones[place] = number, found

    def end(self, transaction: int | None) -> None:
        """Note that nothing of a transaction can be undone any more."""
        for page, found in self._open.pop(transaction, {}).values():
            changes = self._changes.setdefault(page, {})
            for record, change in found.items():
                known = changes.setdefault(record, change)
                if known is not change:
                    known.keep(change)

    def part(self, key: Key) -> Part | None:
        """Return a part as it was; None if there was none."""
        self._end_all()
        page, change = self._container.page(key[0]), self._changes.get(key[0], {}).get(key[1])
        stored = None if page is None else page.parts.get(key[1])
        if change is None:
            return stored
        if change.fields is None:
            return None
        old = Part({}, None, True) if stored is None else stored
        deleted = old.deleted if change.deleted is None else change.deleted
        return Part({**old.fields, **change.fields}, old.next, deleted)

    def rows(self) -> Iterator[tuple[Key, Part]]:
        """Yield the rows that were there, without continuations and what describes the table."""
        self._end_all()
        for number in self._container.numbers:
            page = self._container.page(number)
            if page is None or page.overflow:
                continue
            for record in {**page.parts, **self._changes.get(number, {})}:
                key = number, record
                part = self.part(key)
                if part is not None and not part.deleted and key != CONTROL_ROW:
                    yield key, part

    def _end_all(self) -> None:
        self.noted()
        for transaction in [*self._open]:
            self.end(transaction)

    def overflow(self, page: int) -> bool | None:
        """Return whether a page holds continuations; None if it is not there, or not used.

        Without the container's file nothing tells that: then no page does.
        """
        stored = self._container.page(page)
        return stored.overflow if stored is not None else None if self._container.numbers else False


_UPDATES = (operations.UPDATE_ROW, operations.UPDATE_FIELD)


def _old(body: Body) -> dict[int, _Change]:
    """Return what was before an operation, by record."""
    if body.operation == operations.PURGE:
        records = body.fields["recordIds"]
        return {one: _Change(_purged_fields(body, one), deleted=True) for one in records}
    if body.operation == operations.INSERT:
        return {body.fields["recordId"]: _Change(None)}
    if body.operation in _UPDATES:
        return {body.fields["recordId"]: _Change(_old_fields(body))}
    if body.operation == operations.DELETE:
        return {body.fields["recordId"]: _Change(deleted=not body.fields["delete"])}
    return {}


def _old_fields(body: Body) -> dict[int, Field]:
    if body.operation == operations.UPDATE_FIELD:
        cursor = Cursor(body.optional or b"")
        read_field(cursor)
        return {body.fields["fieldId"]: read_field(cursor)}
    row = images_of(body).row_before
    return {} if row is None else part_of(row).fields


def _purged_fields(body: Body, record: int) -> dict[int, Field]:
    try:
        rows = rows_of(body) if body.optional else []
    except LogFormatError:
        return {}
    return next((part_of(row).fields for row in rows if row.record_id == record), {})


@dataclass(frozen=True, slots=True)
class PageHead:
    """What recovery asks of a page: its version, or what is wrong with it.

    ``version`` is None where the page is not there or cannot be read; ``problem`` says why, and
    ``unwritten`` that it was never written: it is after the end of the file, or all zeros; ``cut``
    that the file ends in it. ``used`` is a page of rows, whether or not it has any.
    """

    number: int
    version: int | None
    problem: str = ""
    unwritten: bool = False
    cut: bool = False
    used: bool = False


class PageFile:
    """A container's file, of which single pages are read.

    Attributes:
        page_size: in bytes; 0 if the head of the container cannot be read.
        dropped: the container was dropped, or removed.
        removed: its drop was committed, and it was removed: recovery leaves it alone.
        version: of the container, which a drop raises, and what takes it back.
        pages: how many its first allocation page counts, with itself.
        pages_max: how many it can count.
    """

    def __init__(self, path: str, cipher: LogCipher | None = None) -> None:
        self._path, self._cipher = path, cipher
        self.size = source_size(path)
        head = read_part(path, _INFO_AT, _INFO_WHOLE + _EXTENT.size)
        info = head[1:_INFO_WHOLE]
        self.page_size, self.pages, self.pages_max = 0, 0, 0
        self.version, self.dropped, self.removed = 0, False, False
        if len(info) < _INFO_SIZE or crc32(info[:-8]) != int.from_bytes(info[-8:]):
            return
        kind, status, page_size, version = _INFO_HEAD.unpack_from(info)
        if kind == _INFO_FORMAT and 1 << 10 <= page_size <= 1 << 20:
            self.page_size, self.version = page_size, version
            self.dropped = bool(status & (_DROPPED | _COMMITTED_DROP))
            self.removed = bool(status & _COMMITTED_DROP)
            if len(head) == _INFO_WHOLE + _EXTENT.size:
                last, count = _EXTENT.unpack_from(head, _INFO_WHOLE)
                self.pages, self.pages_max = 1 + max(0, count), 1 + last

    def free(self) -> frozenset[int]:
        """Return the numbers of the pages that the first allocation page says are free."""
        begin = _INFO_AT + _INFO_WHOLE + _EXTENT.size
        data = read_part(self._path, begin, self.page_size)
        size = -(-max(0, _BITS.unpack_from(data)[0]) // 8)
        bits = data[_BITS.size : _BITS.size + size]
        places = (8 * at + bit for at, byte in enumerate(bits) for bit in range(8)
                  if byte & 0x80 >> bit)  # fmt: skip
        return frozenset(1 + place for place in places)

    def heads(self, numbers: Iterable[int]) -> Iterator[PageHead]:
        """Yield what recovery asks of pages, whose numbers grow."""
        wanted = list(numbers)
        there = bisect_left(wanted, self.size // self.page_size)
        for number, page in self.pages_at(wanted[:there]):
            yield _head(number, page, self.page_size)
        for number in wanted[there:]:
            # Files grow by whole pages: one that ends within a page was cut, and had that page.
            cut = number * self.page_size < self.size
            problem = (
                f"{'its file ends in it' if cut else 'it is after the end of its file'} (XSDG0)"
            )
            yield PageHead(number, None, problem, unwritten=not cut, cut=cut)

    def pages_at(self, numbers: Iterable[int]) -> Iterator[tuple[int, memoryview]]:
        """Yield pages as they are in memory, whose numbers grow."""
        near: list[int] = []
        for number in numbers:
            if near and (number - near[0]) * self.page_size >= _READ_AT_ONCE:
                yield from self._pages(near)
                near = []
            near.append(number)
        yield from self._pages(near)

    def rows(self, *, is_index: bool) -> int:
        """Return how many rows the pages have that are not deleted; -1 if that is not known."""
        if self.removed or not self.page_size:
            return -1
        pages = self.pages_at(range(1, self.size // self.page_size))
        try:
            return sum(_live_rows(number, page, is_index=is_index) for number, page in pages)
        except (LogFormatError, struct.error, IndexError):
            return -1

    def is_tree(self) -> bool:
        """Return whether the pages of an index lead from its first one to each that is in use.

        True also where a page cannot be read.
        """
        pages = self.pages_at(range(1, self.size // self.page_size))
        try:
            nodes = {number: node for number, page in pages if (node := _node(page)) is not None}
        except (LogFormatError, struct.error, IndexError):
            return True
        found, row = set[int](), [_ROOT]
        while row:
            for left, number, right in zip((_NONE, *row), row, (*row[1:], _NONE), strict=False):
                node = nodes.get(number)
                if number in found or node is None or (node.left, node.right) != (left, right):
                    return False
                found.add(number)
            row = [child for number in row for child in nodes[number].children]
        return found == nodes.keys()

    def _pages(self, near: Sequence[int]) -> Iterator[tuple[int, memoryview]]:
        if not near:
            return
        first, size = near[0], self.page_size
        data = memoryview(read_part(self._path, first * size, (near[-1] + 1 - first) * size))
        for number in near:
            begin = (number - first) * size
            page = data[begin : begin + size]
            # Decrypted, zeros would seem to be a damaged page.
            if any(page):  # one that was never written is not encrypted
                page = memoryview(clear_page(page, number, self._cipher))
            yield number, page


def clear_page(
    page: bytes | memoryview, number: int, cipher: LogCipher | None
) -> bytes | memoryview:
    """Return a page as it is in memory.

    All pages but the first are encrypted, each by itself, with its checksum moved to the front.
    """
    if cipher is None or number == 0 or len(page) % cipher.block_size:
        return page
    clear = cipher.decrypt(page)
    return clear[_CHECKSUM_SIZE:] + clear[:_CHECKSUM_SIZE]


def holds(page: memoryview, image: bytes) -> bool:
    """Return whether a page has a row as a change writes it, whose image comes first.

    True also where the image cannot be decoded: Derby does not decode what the page has already.
    """
    try:
        wanted = read_row(Cursor(image))
    except LogFormatError:
        return True
    try:
        stored = _row_on(page, wanted.record_id)
    except (LogFormatError, struct.error, IndexError):
        return False
    fields = {} if stored is None else part_of(stored).fields
    # An update leaves out what it does not change.
    return all(
        column in fields and fields[column].data == one.data
        for column, one in part_of(wanted).fields.items()
    )


def is_marked(page: memoryview, record_id: int, *, deleted: bool) -> bool:
    """Return whether a page has a row, and it is deleted or not as a change marks it."""
    try:
        for at, *_ in _SLOT.iter_unpack(_slots(page)):
            if Cursor(page, at + 1).compressed_int() == record_id:
                return bool(page[at] & _DELETED) is deleted
    except (LogFormatError, struct.error, IndexError):
        pass
    return False


def has_rows_of_table(number: int) -> bool:
    """Return whether a container holds rows of a table, not of an index: its number says so."""
    return number & _FACTORY == _HEAP


def _slots(page: memoryview) -> memoryview:
    """Return the places of the rows of a page, the last one first."""
    count, end = _PAGE.unpack_from(page)[-1], len(page) - _CHECKSUM_SIZE
    return page[max(0, end - count * _SLOT.size) : end]


def _row_on(page: memoryview, record_id: int) -> Row | None:
    # What came last stands behind the others, if no order asks for another place.
    for at, *_ in _SLOT.iter_unpack(_slots(page)):
        if Cursor(page, at + 1).compressed_int() == record_id:
            return read_row(Cursor(page, at))
    return None


def _head(number: int, page: memoryview, size: int) -> PageHead:
    if len(page) < size:
        return PageHead(number, None, "its file became shorter")
    kind, _, status, version, _ = _PAGE.unpack_from(page)
    if kind not in (_PAGE_FORMAT, _ALLOC_FORMAT):
        return PageHead(number, None, f"its format id is {kind} (XSDBB)", unwritten=not any(page))
    summed = page[:-_CHECKSUM_SIZE]
    if number == 0:  # the head of the container in it is written by itself
        head, rest = bytes(page[: _INFO_AT + 1]), bytes(summed[_INFO_AT + _INFO_WHOLE :])
        # Its 80 bytes count as zeros, as it changes without the page (format, Recovery).
        summed = memoryview(head + bytes(_INFO_SIZE) + rest)
    if crc32(summed) != int.from_bytes(page[-_CHECKSUM_SIZE:]):
        return PageHead(number, None, "its checksum is wrong (XSDG2)")
    return PageHead(number, version, used=(kind, status) == (_PAGE_FORMAT, _VALID))


def _live_rows(number: int, page: memoryview, *, is_index: bool) -> int:
    """Return how many rows of a table or index begin on a page and are not deleted."""
    kind, overflow, status, _, count = _PAGE.unpack_from(page)
    if (kind, status) != (_PAGE_FORMAT, _VALID) or overflow or not count:
        return 0
    end = len(page) - _CHECKSUM_SIZE
    places = [_SLOT.unpack_from(page, end - slot * _SLOT.size)[0] for slot in range(1, count + 1)]
    if is_index:
        described = read_row(Cursor(bytes(page[places[0] : end])))
        if not described.fields or described.fields[0].data != _LEAF:
            return 0
    of_rows = places[1:] if is_index or number == CONTROL_ROW[0] else places
    return sum(not page[place] & _DELETED for place in of_rows)


class _Node(NamedTuple):
    """A page of an index: its neighbours, and the pages below it in their order."""

    left: int
    right: int
    children: tuple[int, ...]


def _node(page: memoryview) -> _Node | None:
    """Return what a page of an index says of others; None of one that is not in use."""
    kind, _, status, _, count = _PAGE.unpack_from(page)
    if (kind, status) != (_PAGE_FORMAT, _VALID) or not count:
        return None
    end = len(page) - _CHECKSUM_SIZE
    places = [at for at, *_ in _SLOT.iter_unpack(_slots(page))][::-1]
    data = bytes(page[:end])
    described = read_row(Cursor(data, places[0])).fields
    children: tuple[int, ...] = ()
    if described[0].data != _LEAF:
        rows = (read_row(Cursor(data, at)) for at in places[1:])
        below = [described[-1], *(one.fields[-1] for one in rows)]
        children = tuple(int.from_bytes(one.data or b"") for one in below)
    left, right = (int.from_bytes(described[at].data or b"", signed=True) for at in (_LEFT, _RIGHT))
    return _Node(left, right, children)


class Conglomerate(NamedTuple):
    """A table or an index by its container; a table and its indexes have one ``table_id``."""

    number: int
    is_table: bool
    table_id: bytes


def conglomerates(path: str, cipher: LogCipher | None = None) -> Iterator[Conglomerate]:
    """Yield what the catalogue says of containers.

    Args:
        path: the container of ``SYSCONGLOMERATES``. Rows that cannot be read are left out.
        cipher: that of an encrypted database.

    Raises:
        LogUnreadableError: the file cannot be read.
    """
    with open_source(path) as source:
        container = Container(source, cipher)
        for number in container.numbers:
            try:
                page = container.page(number)
            except CorruptLogError:
                continue
            if page is None or page.overflow:
                continue
            for record, part in page.parts.items():
                fields = part.fields
                if part.deleted or (number, record) == CONTROL_ROW:
                    continue
                if _TABLE_ID in fields and _NUMBER in fields and _IS_INDEX in fields:
                    yield Conglomerate(
                        int.from_bytes(fields[_NUMBER].data or b""),
                        fields[_IS_INDEX].data == b"\0",
                        fields[_TABLE_ID].data or b"",
                    )


def open_container(log: str, number: int) -> ByteSource | None:
    """Open a container's file in the database that the folder of a log belongs to."""
    database = log.rstrip("/").rpartition("/")[0]
    for packing in ("", *PACKINGS):
        try:
            return open_source(f"{database}/{SEGMENT}/c{number:x}.dat{packing}")
        except LogUnreadableError:
            continue
    return None


def _page_size(source: ByteSource) -> int:
    """Return the size of a container's pages; 0 if its head cannot be read."""
    if source.size < _INFO_AT + _INFO.size:
        return 0
    size, kind, _, page_size = _INFO.unpack_from(source.data, _INFO_AT)
    known = size == _INFO_SIZE and kind == _INFO_FORMAT and 1 << 10 <= page_size <= 1 << 20
    return page_size if known else 0
