"""A page store in a database of H2: its nodes, the defects its check finds, its file.

That the real H2 opens it: `tests/interop/h2/test_page_store.py`.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import (
    CorruptLogError,
    LogWriteError,
    TallystickError,
    UnsupportedFormatError,
)
from tallystick.services.page_store import PageStore
from tallystick.services.page_store.pages.layout import KEY_MAX, KEY_MIN
from tallystick.systems.h2.database.nodes import (
    Chunk,
    Empty,
    EnginePage,
    FreeList,
    Inner,
    Leaf,
    Node,
    codec,
)
from tallystick.systems.h2.database.paged_log import H2PagedLog
from tallystick.systems.h2.database.tables import pack, unpack
from tallystick.systems.h2.engine.recovery import recover, used_pages
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import Type
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.read.scan import whole_entries
from tallystick.systems.h2.read.stream import open_stream
from tallystick.systems.h2.runs.pieces import LogPieces
from tallystick.systems.registry import open_undo_redo_log, system
from tests.services.page_store.rows import put_rows

FILE = system("h2").log_file
SIZE = 4096
CODEC = codec(SIZE)
COVERED = (0, 1, 2, 6, SIZE // 2 - 1, SIZE // 2, SIZE - 2, SIZE - 1)
"""Bytes of a page that its checksum covers, and the checksum."""

_keys = st.integers(KEY_MIN, KEY_MAX)
_pages = st.integers(5, (1 << 31) - 1)
_tables = st.integers(-1, 1 << 20)
_leaves = st.builds(
    lambda table, columns, parent, rows: Leaf(table, columns, parent, [*rows], [*rows.values()]),
    _tables, st.integers(1, 6), _pages, st.dictionaries(_keys, st.binary(max_size=200), max_size=9),
)  # fmt: skip
_inners = st.builds(
    lambda table, keys, above, count: Inner(table, keys, [*range(7, 8 + len(keys))], above, count),
    _tables, st.lists(_keys, max_size=200), _pages, st.integers(-1, 1 << 30),
)  # fmt: skip
_nodes = st.one_of(
    _leaves,
    _inners,
    st.builds(lambda data, parent: Chunk(data, parent), st.binary(max_size=SIZE - 9), _pages),
    st.builds(lambda parent, page: Chunk(bytes(SIZE - 11), parent, page), _pages, _pages),
    st.builds(
        lambda bits: FreeList(bytearray(bits)), st.binary(min_size=SIZE - 3, max_size=SIZE - 3)
    ),
)


@given(st.integers(3, 1 << 30), _nodes)
def test_a_node_comes_back_from_its_page(number: int, node: Node) -> None:
    page = CODEC.encode(number, node)
    assert len(page) == SIZE
    assert layout.checksum_ok(page, number)
    assert CODEC.decode(number, page) == node


@given(st.integers(3, 1 << 30), st.binary(max_size=60), st.integers(0, 1 << 30), st.integers(0, 40))
def test_any_bytes_are_a_node_or_corrupt(number: int, start: bytes, seed: int, kind: int) -> None:
    page = bytes([kind]) + bytes(6) + start + random.Random(seed).randbytes(SIZE)
    made = layout.seal(bytearray(page[:SIZE]), number)
    try:
        node = CODEC.decode(number, made)
    except CorruptLogError:
        return
    if not isinstance(node, Empty | EnginePage):
        assert CODEC.decode(number, CODEC.encode(number, node)) == node


@given(_keys, st.binary(max_size=100))
def test_a_row_comes_back_from_its_values(key: int, row: bytes) -> None:
    assert unpack(pack(key, row)) == row


def made(folder: Path) -> bytes:
    """A store with pages of every kind: leaves, inner nodes, long rows, free ones."""
    with PageStore(folder, system="h2") as store:
        put_rows(store, SIZE)
        assert not store.check()
    return (folder / FILE).read_bytes()


def kinds(content: bytes) -> dict[int, int]:
    """Return the type of each page in use."""
    first = content[::SIZE]
    return {number: kind for number, kind in enumerate(first) if number > 2 and kind}


def is_sound(folder: Path) -> bool:
    try:
        store = PageStore(folder, system="h2")
    except TallystickError:
        return False
    defects = store.check()
    store._close_files()
    return not defects


def test_a_flipped_bit_that_a_checksum_covers_is_found(tmp_path: Path) -> None:
    content = made(tmp_path / "s")
    assert {1, 2, 3, 6} <= {kind & ~layout.LAST for kind in kinds(content).values()}
    chance = random.Random(1)
    for number in kinds(content):
        place = chance.choice(COVERED[1:])
        damaged = bytearray(content)
        damaged[number * SIZE + place] ^= 1 << chance.randrange(8)
        (tmp_path / "s" / FILE).write_bytes(damaged)
        assert not is_sound(tmp_path / "s"), f"byte {place} of page {number}"


def _change(content: bytes, number: int, change: Callable[[Node], None]) -> bytes:
    page = content[number * SIZE : (number + 1) * SIZE]
    node = CODEC.decode(number, page)
    change(node)
    return content[: number * SIZE] + CODEC.encode(number, node) + content[(number + 1) * SIZE :]


def _first(content: bytes, kind: type, table: int | None = None) -> int:
    for number in kinds(content):
        node = CODEC.decode(number, content[number * SIZE : (number + 1) * SIZE])
        if isinstance(node, kind) and (table is None or getattr(node, "table", None) == table):
            return number
    raise AssertionError("no such page")


TABLE = 15
"""The first number after the engine's own objects."""
WRONG: dict[str, tuple[type, Callable[..., None]]] = {
    "keys out of order": (Leaf, lambda leaf: leaf.keys.reverse()),
    "a key of another leaf": (Leaf, lambda leaf: leaf.keys.append(leaf.keys.pop() + 50)),
    "another parent": (Leaf, lambda leaf: setattr(leaf, "parent", leaf.parent + 1)),
    "another table": (Leaf, lambda leaf: setattr(leaf, "table", leaf.table + 1)),
    "another child": (Inner, lambda inner: inner.children.reverse()),
    "another separator": (Inner, lambda inner: inner.keys.insert(0, inner.keys.pop(0) - 1)),
    "a chunk of another": (Chunk, lambda chunk: setattr(chunk, "parent", chunk.parent + 1)),
    "a used page marked free": (FreeList, lambda free: free.bits.__setitem__(0, 1)),
    "a free page marked used": (FreeList, lambda free: free.bits.__setitem__(8, 255)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_field_is_found(tmp_path: Path, wrong: str) -> None:
    content = made(tmp_path / "s")
    kind, change = WRONG[wrong]
    number = _first(content, kind, TABLE if kind in (Leaf, Inner) else None)
    (tmp_path / "s" / FILE).write_bytes(_change(content, number, change))
    assert not is_sound(tmp_path / "s")


def test_a_store_is_of_one_system_and_found_by_what_is_there(tmp_path: Path) -> None:
    made(tmp_path / "s")
    with PageStore(tmp_path / "s") as store:
        assert store.tables() == ["t"]
        assert store.store_id
    with pytest.raises(UnsupportedFormatError, match="another system"):
        PageStore(tmp_path / "s", system="tally")
    PageStore(tmp_path / "tally").close()
    with pytest.raises(UnsupportedFormatError, match="not in the layout of its log"):
        PageStore(tmp_path / "tally", system="h2")
    open_undo_redo_log(tmp_path / "former" / "log", "h2").close()
    shutil.copy(tmp_path / "tally" / "pages", tmp_path / "former" / "pages")
    with pytest.raises(UnsupportedFormatError, match="not in the layout of its log"):
        PageStore(tmp_path / "former", system="h2")


def test_a_name_already_taken_is_refused_and_the_store_continues(
    tmp_path: Path,
) -> None:
    with PageStore(tmp_path / "s", system="h2") as store:
        with pytest.raises(LogWriteError, match="cannot be named"):
            store.create_table("")
        store.create_table('a "quoted" name\nin two lines é €')
        assert store.tables() == ['a "quoted" name\nin two lines é €']
        assert not store.check()


def test_a_closed_store_has_no_log_and_ends_with_its_last_page(tmp_path: Path) -> None:
    content = made(tmp_path / "s")
    header = layout.decode_variable_header(content[SIZE : 2 * SIZE])
    assert header is not None
    assert (header.first_trunk, header.first_data) == (0, 0)
    assert not {layout.STREAM_TRUNK, layout.STREAM_DATA} & set(kinds(content).values())
    assert len(content) // SIZE == max(kinds(content)) + 1


def test_the_free_list_never_marks_a_page_of_our_own_log(tmp_path: Path) -> None:
    """So sections may be dropped without FREE_LOG: recovery can restore no mark on their pages."""
    chance = random.Random(3)
    dropped = 0
    for _ in range(2):
        store = PageStore(tmp_path / "s", system="h2", cache_bytes=0, checkpoint_bytes=100_000)
        if not store.tables():
            store.create_table("t")
        for _ in range(25):
            with store.begin() as tx:
                for key in chance.sample(range(300), 4):
                    tx.table("t")[key] = chance.randbytes(chance.choice((5, 900, 9000)))
            left = Path(shutil.copy(tmp_path / "s" / FILE, tmp_path / FILE))
            assert marks_on_log_pages(left) == []
        log = store._log
        assert isinstance(log, H2PagedLog)
        dropped += log._log.log_first_section_id
        store._close_files()
    assert dropped > 3


def marks_on_log_pages(path: Path) -> list[int]:
    """Pages of the log that the free list marks once recovery has restored its images."""
    with PageStoreFile(str(path)) as store:
        stream = open_stream(store.view(), store.header)
        recovery = recover(LogPieces(stream, Zone()))
        images = {
            entry.page: entry.image
            for entry in whole_entries(stream)
            if entry.code == Type.UNDO and recovery.undo_applied(entry)
        }
        return store.listed(used_pages(stream), images)
