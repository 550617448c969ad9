"""Rows of tables from the database's own files, as they were where its log begins.

In: a container's file (``seg0/c<N>.dat``) and all operations on it. Out: parts of rows by page and
record id. Pages are read when they are needed; what the log had already brought to a page is
taken back with the old images in the log, so memory grows with the rows that the log changes.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tallystick.errors import CorruptLogError, LogFormatError, LogUnreadableError
from tallystick.storage.source import PACKINGS, ByteSource, folder_above, open_source
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import Cursor
from tallystick.systems.derby.format.container_pages import (
    CHECKSUM_SIZE,
    HEAD_AT,
    HEAD_SIZE,
    ROW_DELETED,
    clear_page,
    is_summed,
    read_head,
    read_page_header,
    rows_at,
)
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

_TABLE_ID, _NUMBER, _IS_INDEX = 1, 2, 4
"""Columns of ``SYSCONGLOMERATES``."""
_FACTORY, _HEAP = 15, 0
"""Bits of a container's number that tell what made it, and what they are for rows of tables."""
_CACHED = 64


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
    return Part(fields, row.overflow, bool(row.status & ROW_DELETED))


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
            CorruptLogError: the page is damaged, or is being written.
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
        header = read_page_header(data)
        if not header.has_rows:
            return None
        try:
            if not is_summed(data, number):
                raise LogFormatError("a page has another checksum")
            clear = data[:-CHECKSUM_SIZE]
            rows = [read_row(Cursor(clear, at)) for at in rows_at(data)]
        except (LogFormatError, struct.error) as error:
            raise CorruptLogError(
                f"a page of the database cannot be read: {error}", file=self._source.path,
                offset=begin, advice="Read again, if the database is being written",
            ) from error  # fmt: skip
        parts = {row.record_id: part_of(row) for row in rows}
        return StoredPage(header.version, bool(header.overflow), parts)


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
        for at in reversed(rows_at(page)):
            if Cursor(page, at + 1).compressed_int() == record_id:
                return bool(page[at] & ROW_DELETED) is deleted
    except (LogFormatError, struct.error, IndexError):
        pass
    return False


def _row_on(page: memoryview, record_id: int) -> Row | None:
    # What came last stands after the others, if no order asks for another place.
    for at in reversed(rows_at(page)):
        if Cursor(page, at + 1).compressed_int() == record_id:
            return read_row(Cursor(page, at))
    return None


def has_rows_of_table(number: int) -> bool:
    """Return whether a container holds rows of a table, not of an index: its number says so."""
    return number & _FACTORY == _HEAP


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
    database = folder_above(log)
    for packing in ("", *PACKINGS):
        try:
            return open_source(f"{database}/{SEGMENT}/c{number:x}.dat{packing}")
        except LogUnreadableError:
            continue
    return None


def _page_size(source: ByteSource) -> int:
    """Return the size of a container's pages; 0 if its head cannot be read."""
    head = read_head(source.data[HEAD_AT : HEAD_AT + HEAD_SIZE])
    return 0 if head is None else head.page_size
