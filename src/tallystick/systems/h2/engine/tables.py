"""The tables of the page store as recovery finds them, read-only.

In: a page file and what stage 0 does to it. Out: undone pages, the tables and indexes that the page
index names (the engine calls it meta table), row keys and rows of tables. Only what decides whether
a database opens is read: data leaves, nodes and overflow pages; of b-tree pages the header only.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tallystick.systems.h2.engine.recovery import META_NUMBERS, Recovery, is_odd_row
from tallystick.systems.h2.engine.steps import Step, Steps
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import META_COLUMNS, TABLE_META, UNDO_EMPTY, UNDO_RAW
from tallystick.systems.h2.format.lzf import LENGTH_MAX, expand_into
from tallystick.systems.h2.format.numbers import decode_var_int
from tallystick.systems.h2.format.table_pages import (
    FIELDS_START,
    DataLeaf,
    DataNode,
    decode_index_children,
    decode_leaf,
    decode_node,
)
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.java_text import whole_number
from tallystick.systems.h2.format.values.types import (
    EngineFailureError,
    FileCorruptedError,
    Value,
    decode_value,
    stored_object,
)
from tallystick.systems.h2.read.stream import LogStream, PageFile
from tallystick.systems.h2.read.surroundings import LobFile, lob_file

_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
TABLE_KIND, INDEX_KIND = 0, 1
"""TYPE in a row of the page index: data (a table) or b-tree (an index of a table)."""
_DEPTH_MAX = 64
_UNKNOWN = -1
"""A number of rows where a page cannot be read."""
_KEY_MAX = (1 << 63) - 1


class StoreError(Exception):
    """The engine's error while it reads pages: its code and its words."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


FILE_CORRUPTED = 90030
READ_ONLY = 90097
GENERAL_ERROR = 50000


def corrupted(text: str) -> StoreError:
    """Return the engine's "file corrupted while reading record"."""
    return StoreError(FILE_CORRUPTED, f"file corrupted while reading record: {text}")


@dataclass(frozen=True, slots=True)
class MetaRow:
    """A row of the page index: one index or table of the store.

    Attributes:
        index: its id.
        kind: `TABLE_KIND` or `INDEX_KIND`.
        parent: the id of its table.
        root: its root page; 0: the index delegates to its table, and has no pages.
        column: of an index that delegates, the column whose values are the row keys of its table;
            -1 where that is not known.
        columns: the number of values in a row; 0 where that is not known.
        temporary: whether its options say so.
    """

    index: int
    kind: int
    parent: int
    root: int
    column: int = -1
    columns: int = 0
    temporary: bool = False


@dataclass(slots=True)
class UndonePages:
    """Pages as they are after stage 0."""

    pages: PageFile
    stream: LogStream | None = None
    recovery: Recovery | None = None

    def page(self, page_id: int) -> bytes | memoryview | None:
        """Return the page; None if it is empty.

        Raises:
            StoreError: the engine fails.
        """
        if not self.pages.exists(page_id):
            raise corrupted(f"{page_id} of {self.pages.page_count}")
        image = self._image(page_id)
        page = self.pages.page(page_id) if image is None else image
        if page[0] == layout.EMPTY:
            return None
        if image is None and not layout.checksum_ok(page, page_id):
            raise corrupted(f"wrong checksum of page {page_id}")
        return page

    def is_undone(self, page_id: int) -> bool:
        """Return True if stage 0 writes an image of the page."""
        return self.recovery is not None and page_id in self.recovery.undo

    def _image(self, page_id: int) -> bytes | None:
        """Return the image that stage 0 writes to a page; None if it writes none."""
        if self.recovery is None or self.stream is None or page_id not in self.recovery.undo:
            return None
        damaged = self.recovery.damaged_images.get(page_id)
        if damaged is not None:
            return damaged
        _, start = self.recovery.undo[page_id]
        return _image_at(self.stream, start)


def _image_at(stream: LogStream, start: int) -> bytes:
    """Return the image of the undo record at this stream offset, which was read whole before."""
    size = stream.pages.page_size
    first, at = divmod(start, stream.body_size)
    data = stream.bodies(first, 5)  # two pages of image as a rule, and its header
    _, at = decode_var_int(data, at + 1)
    stored, at = decode_var_int(data, at)
    if at + stored > len(data):  # a damaged length: the engine reads what it says
        data = stream.bodies(first, (at + stored) // stream.body_size + 1)
    if stored == UNDO_EMPTY:
        return bytes(size)
    if stored == UNDO_RAW:
        return data[at : at + size]
    # Stage 0 found no fault in it; its buffer may have been larger than a page.
    image = bytearray(size + LENGTH_MAX)
    expand_into(data[at : at + stored], image, size)
    return bytes(image[:size])


class _Below(NamedTuple):
    """A page of a table's tree: keys in it are above ``above`` and up to ``limit``."""

    page_id: int
    parent: int = 0
    above: int = -_KEY_MAX - 2
    limit: int = _KEY_MAX
    depth: int = 0

    def children(self, node: DataNode) -> list[_Below]:
        """Return the pages below a node that stands here."""
        limits = [self.above, *node.keys, self.limit]
        return [
            _Below(child, self.page_id, above, limit, self.depth + 1)
            for child, (above, limit) in zip(node.children, pairwise(limits), strict=True)
        ]


@dataclass(slots=True)
class Tables:
    """Tables of the undone store; all methods raise `StoreError` where the engine fails."""

    undone: UndonePages
    zone: Zone
    meta: dict[int, MetaRow] = field(default_factory=dict)
    emptied: dict[int, int] = field(default_factory=dict)
    """Tables whose root page is zeroed although the log has no image of it, to that page."""
    had_rows: set[int] = field(default_factory=set)
    """Those of ``emptied`` that had rows: `damaged_pages` met an index of theirs with entries."""
    read_only: bool = False
    """Then the engine cannot make an empty leaf of an empty page."""
    odd_rows: bool = False
    """The page index has a row that the engine never writes."""
    lob_files: list[tuple[int, int, LobFile]] = field(default_factory=list)
    """Table and key of rows that `damaged_pages` met and that name a large object in a file, and
    what names that."""
    stored: array[int] = field(default_factory=lambda: array("q"))
    """Table, key and number of each large object in the database that such a row names, in turn."""
    _steps: Steps = field(default_factory=Steps)
    _free_list: tuple[int, bytes | None] = (0, None)
    """The page of the free list that was asked last, and its bits; None where it is damaged."""
    _key_columns: dict[int, int] | None = None

    def open_meta(self, *, never_written: bool = False) -> None:
        """Read the first page of the free list, the page index and every root page.

        The engine takes a zeroed page index for an empty one. ``never_written``: the database may
        be a new one, which has no page index and no free list yet.
        """
        free = self.undone.page(layout.FREE_LIST_ROOT)
        if self.undone.page(layout.META_ROOT) is None and not (
            self.undone.is_undone(layout.META_ROOT) or (never_written and free is None)
        ):
            self.emptied[TABLE_META] = layout.META_ROOT
            self.had_rows.add(TABLE_META)
        if free is not None and free[0] != layout.FREE_LIST:
            raise corrupted(f"page {layout.FREE_LIST_ROOT} is no free list")
        for _, values in self.rows(layout.META_ROOT):
            row = meta_row(values)
            self.odd_rows |= is_odd_row(values)
            if row.kind not in (TABLE_KIND, INDEX_KIND):
                continue
            self.meta[row.index] = row
            if row.root and row.kind == TABLE_KIND:
                self._open_table(row)
            elif row.root:  # an index that delegates to its table has no page
                self._check_btree(row)

    def _open_table(self, row: MetaRow) -> None:
        """Read what the engine reads of a table when it opens it: its last key and row count."""
        part = self._data_page(row.root)
        if part is None and not self.undone.is_undone(row.root):
            self.emptied[row.index] = row.root
        if isinstance(part, DataNode) and part.row_count < 0:  # unknown: it counts
            for _ in self._leaves(row.root, _DEPTH_MAX, counted=True):
                pass
        page_id, parent = row.root, 0
        for _ in range(_DEPTH_MAX):
            if not isinstance(part, DataNode):
                return
            parent, page_id = page_id, part.children[-1]
            part = self._data_page(page_id, parent)
        raise StoreError(GENERAL_ERROR, f"the tree below page {row.root} does not end")

    def _check_btree(self, row: MetaRow) -> None:
        page = self.undone.page(row.root)
        if page is None:
            return  # the engine makes an empty leaf of it
        if page[0] & ~layout.LAST not in _BTREE_TYPES:
            raise corrupted(f"{row.root} is no page of index {row.index}")
        self._check_owner(page, row.kind)

    def _check_owner(self, page: bytes | memoryview, kind: int) -> None:
        """Require that the index that a page names is open already, and of the page's kind."""
        index, _ = decode_var_int(page, FIELDS_START)
        row = meta_table() if index == TABLE_META else self.meta.get(index)
        if row is None or row.kind != kind:
            raise corrupted(f"index not found {index}")

    def rows(self, root: int) -> Iterator[tuple[int, tuple[Value | None, ...]]]:
        """Yield keys and values of every row below ``root``, in key order."""
        for leaf in self._leaves(root, _DEPTH_MAX):
            for at, key in enumerate(leaf.keys):
                yield key, self._row(leaf, at)

    def row(self, root: int, key: int) -> tuple[Value | None, ...] | None:
        """Return the values of the row with this key below ``root``; None where there is none."""
        page_id, parent = root, 0
        for _ in range(_DEPTH_MAX):
            part = self._data_page(page_id, parent)
            if not isinstance(part, DataNode):
                known = part is not None and key in part.keys
                return self._row(part, part.keys.index(key)) if part and known else None
            parent, page_id = page_id, part.children[bisect_left(part.keys, key)]
        raise StoreError(GENERAL_ERROR, f"the tree below page {root} does not end")

    def damaged_pages(self) -> Iterator[tuple[int, str]]:
        """Yield each damaged page that a table, an index or the free list has, and why it is so.

        The engine reads each page of the free list before it first writes. A page in use that the
        list calls free counts as damaged: the engine gives it to others. Reads one page at a time.
        """
        if self.odd_rows:
            yield layout.META_ROOT, "a row of the page index holds what the engine never writes"
        yield from self._damaged_free_lists()
        seen: set[int] = set()
        rows = {TABLE_META: (yield from self._damaged_below(_Below(layout.META_ROOT), seen))}
        for row in self.meta.values():
            if row.kind == TABLE_KIND and row.root:
                rows[row.index] = yield from self._damaged_below(_Below(row.root), seen)
        for row in self.meta.values():
            if row.kind == INDEX_KIND and row.root:
                entries = yield from self._damaged_in_index(row, _Below(row.root), set())
                known = rows.get(row.parent, _UNKNOWN)
                if _UNKNOWN not in (entries, known) and entries != known and not row.temporary:
                    yield row.root, f"its index has {entries} entries, and its table {known} rows"
                if entries > 0 and row.parent in self.emptied:
                    self.had_rows.add(row.parent)

    def _damaged_below(
        self, below: _Below, seen: set[int]
    ) -> Generator[tuple[int, str], None, int]:
        """Yield as `damaged_pages` does, of a table; return how many rows it has."""
        page_id = below.page_id
        if page_id in seen:
            return _UNKNOWN
        seen.add(page_id)
        if below.depth == _DEPTH_MAX:
            yield page_id, _ENDLESS
            return _UNKNOWN
        try:
            part = self._data_page(page_id, below.parent)
            problem = self._problem(part, below)
        except StoreError as error:
            yield page_id, error.text
            return _UNKNOWN
        if problem or (part is not None and self._is_free(page_id)):
            yield page_id, problem or _CALLED_FREE  # of an empty root the engine takes the page
        if not isinstance(part, DataNode):
            return 0 if part is None else len(part.keys)
        rows = 0
        for child in below.children(part):
            more = yield from self._damaged_below(child, seen)
            rows = _UNKNOWN if _UNKNOWN in (rows, more) else rows + more
        if rows != _UNKNOWN and rows != part.row_count >= 0 and not problem:
            yield page_id, f"it counts {part.row_count} rows, and {rows} are below it"
        return rows

    def _damaged_free_lists(self) -> Iterator[tuple[int, str]]:
        for page_id in self.undone.pages.free_lists:
            try:
                page = self.undone.page(page_id)
            except StoreError as error:
                yield page_id, error.text
                continue
            if page is not None and page[0] != layout.FREE_LIST:
                yield page_id, "it is no free list"

    def _is_free(self, page_id: int) -> bool:
        """Return True if the free list calls a page free, also where its page is zeroed.

        False where it is damaged, which is reported once, with the page of the list.
        """
        first, at = layout.place_in_list(page_id, self.undone.pages.page_size)
        if first != self._free_list[0]:
            self._free_list = first, self._free_bits(first)
        bits = self._free_list[1]
        return bits is not None and not layout.marks(bits, at)

    def _free_bits(self, first: int) -> bytes | None:
        """Return the bits of the page ``first`` of the free list; None where they tell nothing."""
        try:
            page = self.undone.page(first)
        except StoreError:
            return None
        if page is None and self.undone.is_undone(first):
            return None  # a new database, before its first checkpoint, has none yet
        if page is None:  # the engine makes a new one, in which no page is in use
            return bytes(self.undone.pages.page_size)
        return bytes(page[layout.FREE_LIST_START :]) if page[0] == layout.FREE_LIST else None

    def _damaged_in_index(
        self, row: MetaRow, below: _Below, seen: set[int]
    ) -> Generator[tuple[int, str], None, int]:
        """Yield as `damaged_pages` does, of an index; return how many entries it has."""
        if below.page_id in seen:
            return _UNKNOWN
        seen.add(below.page_id)
        if below.depth == _DEPTH_MAX:
            yield below.page_id, _ENDLESS
            return _UNKNOWN
        try:
            page = self.undone.page(below.page_id)
            count, children = (0, ()) if page is None else self._index_page(page, row, below)
        except (StoreError, IndexError, struct.error) as error:
            yield below.page_id, str(error)
            return _UNKNOWN
        if page is None and below.parent:
            yield below.page_id, "it is zeroed"
        elif page is not None and self._is_free(below.page_id):
            yield below.page_id, _CALLED_FREE
        entries = 0 if children else count
        for page_id in children:
            child = _Below(page_id, below.page_id, depth=below.depth + 1)
            more = yield from self._damaged_in_index(row, child, seen)
            entries = _UNKNOWN if _UNKNOWN in (entries, more) else entries + more
        if children and entries != _UNKNOWN and entries != count >= 0:
            yield below.page_id, f"it counts {count} entries, and {entries} are below it"
        return entries

    def _index_page(
        self, page: bytes | memoryview, row: MetaRow, below: _Below
    ) -> tuple[int, tuple[int, ...]]:
        """Return how many entries a page of an index counts, and its children."""
        kind = page[0] & ~layout.LAST
        index, at = decode_var_int(page, FIELDS_START)
        (above,) = _INT.unpack_from(page, layout.PARENT_OFFSET)
        if kind not in _BTREE_TYPES or (index, above) != (row.index, below.parent):
            raise corrupted(f"{below.page_id} is no page of index {row.index}")
        if kind == layout.BTREE_LEAF:
            (count,) = _SHORT.unpack_from(page, at)
            if count < 0:
                raise corrupted(f"{below.page_id} has {count} entries")
            return count, ()
        return _INT.unpack_from(page, at)[0], decode_index_children(page, at)

    def _problem(self, part: DataLeaf | DataNode | None, below: _Below) -> str:
        """Return what of a page the engine never writes: its place, its keys, its rows."""
        if part is None:
            return "it is zeroed" if below.parent else ""
        keys = part.keys
        bounds = zip([below.above, *keys], [*keys, below.limit + 1], strict=True)
        if keys and not all(one < other for one, other in bounds):
            return "its keys are out of order"
        return self._row_problem(part) if isinstance(part, DataLeaf) else ""

    def _row_problem(self, leaf: DataLeaf) -> str:
        """Return which row does not fill its place: rows stand end to end, the first one last."""
        limit = len(leaf.page)
        for at, (key, begin) in enumerate(zip(leaf.keys, leaf.offsets, strict=True)):
            data = leaf.page
            if at == 0 and leaf.overflow:
                data = bytes(data[begin:]) + b"".join(self._overflow(leaf.overflow))
                begin, limit = 0, len(data)
            if self._end_of_row(data, begin, leaf, key) not in (limit, None):
                return f"the row with key {key} does not fill its place"
            limit = leaf.offsets[at]
        return ""

    def _end_of_row(
        self, data: bytes | memoryview, at: int, leaf: DataLeaf, key: int
    ) -> int | None:
        """Return the offset after a row; -1 where it is damaged, None where only a plug-in knows.

        Large objects that it names are noted on the way.
        """
        try:
            for _ in range(leaf.columns):
                value, at = decode_value(data, at, self.zone)
                if value is not None:
                    self._note_object(leaf, key, value)
        except (IndexError, FileCorruptedError):
            return -1
        except EngineFailureError:
            return None
        return at

    def _note_object(self, leaf: DataLeaf, key: int, value: Value) -> None:
        if (found := lob_file(value)) is not None:
            table, _ = decode_var_int(leaf.page, FIELDS_START)
            self.lob_files.append((table, key, found))
        elif (number := stored_object(value)) is not None:
            table, _ = decode_var_int(leaf.page, FIELDS_START)
            self.stored.extend((table, key, number))

    def contains(self, root: int, key: int) -> bool:
        """Return True if a row with this key is below ``root``."""
        page_id, parent = root, 0
        for _ in range(_DEPTH_MAX):
            step = self._step(page_id, parent)
            if step is None:
                return False
            if not step.children:
                return step.has(key)
            parent, page_id = page_id, step.child(key)
        raise StoreError(GENERAL_ERROR, f"the tree below page {root} does not end")

    def contains_each(self, root: int, keys: Any) -> Any:
        """Return of which of the keys, an ascending array, a row is below ``root``.

        Raises:
            StoreError: `contains` raises one for some key.
        """
        found = keys != keys  # False for each key
        waiting = [(root, 0, 0, len(keys), _DEPTH_MAX)]
        while waiting:
            page_id, parent, begin, end, depth = waiting.pop()
            if not depth:
                raise StoreError(GENERAL_ERROR, f"the tree below page {root} does not end")
            step = self._step(page_id, parent)
            if step is not None and not step.children:
                found[begin:end] = step.has_each(keys[begin:end])
            elif step is not None:
                # A list, not calls: the tree of a damaged file may be deep, and the depth is
                # counted anyway.
                waiting += [
                    (child, page_id, begin + first, begin + last, depth - 1)
                    for child, first, last in step.parts(keys[begin:end])
                ]
        return found

    def _step(self, page_id: int, parent: int) -> Step | None:
        """Return the step of a page; None if it is empty."""
        step = self._steps.get(page_id, parent)
        if step is None and (part := self._data_page(page_id, parent)) is not None:
            step = self._steps.put(page_id, parent, part)
        return step

    def put_meta(self, index: int, row: MetaRow | None) -> None:
        """Note that a table or an index has another row of the page index now, or none."""
        if row is None:
            self.meta.pop(index, None)
        else:
            self.meta[index] = row
        self._steps.clear()  # who owns a page decides whether it can be read
        self._key_columns = None

    def key_column(self, table: int) -> int | None:
        """Return the column from which the engine takes a table's keys; None: it counts them."""
        if self._key_columns is None:
            self._key_columns = {
                one.parent: one.column
                for one in self.meta.values()
                if one.kind == INDEX_KIND and not one.root
            }
        return self._key_columns.get(table)

    def _leaves(
        self, root: int, depth: int, parent: int = 0, *, counted: bool = False
    ) -> Iterator[DataLeaf]:
        """Yield the leaves below a page; where they are only ``counted``, an empty one is none."""
        if not depth:
            raise StoreError(GENERAL_ERROR, f"the tree at page {root} does not end")
        part = self._data_page(root, parent)
        if isinstance(part, DataLeaf):
            yield part
        elif part is not None:
            for child in part.children:
                yield from self._leaves(child, depth - 1, root, counted=counted)
        # An empty page: the engine would make an empty leaf of it, and must not write.
        elif self.read_only:
            raise StoreError(READ_ONLY, "the database is read only")
        elif parent and not counted:
            raise StoreError(GENERAL_ERROR, f"page {root} is empty")

    def _data_page(self, page_id: int, parent: int = 0) -> DataLeaf | DataNode | None:
        """Return a leaf or node below the page ``parent``, 0 for a root; None of an empty page.

        Its tests come in the engine's order, as the first one that fails names the error.
        """
        page = self.undone.page(page_id)
        if page is None:
            return None
        part = self._decoded(page_id, page)
        (above,) = _INT.unpack_from(page, layout.PARENT_OFFSET)
        if above != parent:  # the engine looks at it last
            raise StoreError(GENERAL_ERROR, f"page {page_id}: parent {above} expected {parent}")
        return part

    def _decoded(self, page_id: int, page: bytes | memoryview) -> DataLeaf | DataNode:
        kind = page[0] & ~layout.LAST
        try:
            if kind in _DATA_TYPES:
                self._check_owner(page, TABLE_KIND)
            if kind == layout.DATA_LEAF:
                return decode_leaf(page)
            if kind == layout.DATA_NODE:
                return decode_node(page)
        except (IndexError, struct.error):
            # In Java an index out of bounds, which the engine reports as a general error.
            raise StoreError(GENERAL_ERROR, f"page {page_id} has no meaning") from None
        raise corrupted(f"{page_id} type {kind} expected type 1 or 2")

    def _row(self, leaf: DataLeaf, at: int) -> tuple[Value | None, ...]:
        """Return the values of row number ``at`` of a leaf, with what is on overflow pages."""
        data = leaf.page
        place = leaf.offsets[at]
        if at == 0 and leaf.overflow:
            data = bytes(data[place:]) + b"".join(self._overflow(leaf.overflow))
            place = 0
        values = []
        try:
            for _ in range(leaf.columns):
                value, place = decode_value(data, place, self.zone)
                values.append(value)
        except FileCorruptedError as error:
            raise corrupted(str(error)) from error
        except (IndexError, EngineFailureError) as error:
            raise StoreError(GENERAL_ERROR, f"a row cannot be read: {error}") from error
        return tuple(values)

    def _overflow(self, page_id: int) -> Iterator[bytes]:
        """Yield what the overflow pages from this one on hold of a row."""
        # A chain of more pages than the file has goes round in a circle.
        for _ in range(self.undone.pages.page_count):
            page = self.undone.page(page_id)
            if page is None or page[0] & ~layout.LAST != layout.DATA_OVERFLOW:
                raise corrupted(f"{page_id} is no overflow page")
            if page[0] & layout.LAST:
                (count,) = _SHORT.unpack_from(page, FIELDS_START)
                yield bytes(page[FIELDS_START + 2 : FIELDS_START + 2 + count])
                return
            (page_id,) = _INT.unpack_from(page, FIELDS_START)
            yield bytes(page[FIELDS_START + 4 :])


_ENDLESS = "the tree above it does not end"
_CALLED_FREE = "it is in use, and the free list calls it free"
_OPTIONS, _COLUMN_LIST = 4, 5
"""Places of options and columns in a row of the page index."""
_TRIMMED = "".join(map(chr, range(33)))
"""What Java trims."""
_DATA_TYPES = (layout.DATA_LEAF, layout.DATA_NODE)
_BTREE_TYPES = (layout.BTREE_LEAF, layout.BTREE_NODE)


def meta_row(values: tuple[Value | None, ...]) -> MetaRow:
    """Decode a row of the page index: id, type, parent, head page, options, columns.

    The engine takes null for 0, and trims a text. It writes neither: see `is_odd_row`.

    Raises:
        StoreError: it has no numbers where these must be.
    """
    numbers = []
    for value in values[:META_NUMBERS]:
        text = "0" if value is None else value.text
        number = whole_number(text.strip(_TRIMMED) if isinstance(text, str) else text)
        if number is None:
            raise StoreError(GENERAL_ERROR, "a row of the page index has no numbers")
        numbers.append(number)
    if len(numbers) < META_NUMBERS:
        raise StoreError(GENERAL_ERROR, "a row of the page index is too short")
    listed = values[_COLUMN_LIST] if len(values) > _COLUMN_LIST else None
    columns = listed.text.split(",") if listed is not None and isinstance(listed.text, str) else []
    column = whole_number(columns[0]) if len(columns) == 1 else None
    options = values[_OPTIONS] if len(values) > _OPTIONS else None
    temporary = options is not None and ",temp," in str(options.text)
    index, kind, parent, root = numbers
    column = -1 if column is None else column
    return MetaRow(index, kind, parent, root, column, len(columns), temporary)


def meta_table() -> MetaRow:
    """Return the row of the page index itself."""
    return MetaRow(TABLE_META, TABLE_KIND, 0, layout.META_ROOT, columns=META_COLUMNS)
