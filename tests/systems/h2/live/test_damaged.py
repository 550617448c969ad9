"""Opening damaged files for writing: documented errors only, and no harm to a header."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import CorruptLogError, TallystickError
from tallystick.services.page_store import PageStore
from tallystick.storage.files import SECTOR
from tallystick.systems.h2.engine.recovery import ALLOCATE_STAGE, REDO_STAGE, UNDO_STAGE
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import (
    encode_add,
    encode_checkpoint,
    encode_commit,
    encode_prepare,
    encode_undo,
)
from tallystick.systems.h2.format.layout import Trunk, VariableHeader
from tallystick.systems.h2.format.values.encode import encode_row
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.log import PageLog
from tallystick.systems.h2.live.role import H2UndoRedoLog
from tallystick.testing import MemoryFileSystem
from tests.roles.contract_undo_redo_log import Store
from tests.systems.h2.kit import page_file

SIZE = 512
LARGE = 2048
PATH = "/log/log.h2.db"
ROW = encode_row([1, "one"])
RECORDS = (
    encode_undo(9, bytes([17]) + bytes(SIZE - 1)),
    encode_add(3, 16, 1, ROW),
    encode_commit(3),
    encode_checkpoint(),
    encode_undo(8, None),
    encode_add(4, 16, 2, ROW * 20),
    encode_prepare(4, "branch"),
)
"""Records with page numbers and keys, over three data pages."""


def a_log() -> bytearray:
    return page_file(b"".join(RECORDS) * 3, page_size=SIZE, pages_listed=9)


def open_for_writing(data: bytes, *, carry: bool) -> None:
    """Recover a file and open it for writing; log something, and close it."""
    fs = MemoryFileSystem({PATH: data})
    with PageStoreFile(PATH, fs=fs) as store:
        log = PageLog(store, batch=4)
        for stage in (UNDO_STAGE, ALLOCATE_STAGE):
            log.recover(stage)
        log.recover(REDO_STAGE, Store())
        if not carry:
            for one in log.get_in_doubt_transactions():
                log.set_in_doubt_transaction_state(one.session, one.page, commit=True)
        log.open_for_writing(carry=carry)
        log.log_add_or_remove_row(7, 16, 3, ROW)
        log.commit(7).wait()
        log.close()
        assert store.view().headers() == (store.header, store.header)


def open_role(data: bytes) -> None:
    log = H2UndoRedoLog("/log", fs=MemoryFileSystem({PATH: data}))
    log.recover(Store())
    log.close()


def open_store(data: bytes) -> None:
    with PageStore("/db", system="h2", fs=MemoryFileSystem({_store()[0]: data})) as store:
        for one in store.in_doubt():
            store.settle(one.name, commit=True)
        if "rows" in store.tables():
            with store.begin() as transaction:
                transaction.table("rows")[5] = b"five"


@functools.cache
def _store() -> tuple[str, bytes]:
    """Return the database of a store that was not closed."""
    fs = MemoryFileSystem()
    store = PageStore("/db", system="h2", fs=fs)
    store.create_table("rows")
    for key in range(40):
        with store.begin() as transaction:
            transaction.table("rows")[key] = b"x" * 100 * key
    ((path, content),) = [pair for pair in fs.contents().items() if pair[0].endswith(".h2.db")]
    return path, bytes(content)


def documented(opening: Callable[[], None]) -> None:
    """Require that opening succeeds or ends with an error of `tallystick.errors`."""
    with contextlib.suppress(TallystickError):
        opening()


class Keys(Store):
    """A store that keeps the keys of rows of any table."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: set[int] = set()

    def redo_add(self, table: int, key: int, row: bytes) -> None:  # noqa: ARG002
        self.keys.add(key)


def kept_of(fs: MemoryFileSystem, count: int) -> set[int]:
    """Commit rows one by one; return the keys that are there when the log is opened again."""
    log = H2UndoRedoLog("/log", fs=fs)
    for key in range(count):
        log.log_row(91, 77, key, b"row")
        log.commit(91).wait()
    log.close()
    again = H2UndoRedoLog("/log", fs=fs)
    store = Keys()
    again.recover(store)
    again.close()
    return store.keys


@pytest.mark.parametrize("rest", [0, 105, SIZE, SIZE + 1, 2 * SIZE])
def test_pages_listed_after_the_end_of_the_file_are_the_new_logs(rest: int) -> None:
    """The log was written, the growth of the file was lost; nothing of the new log is zeroed."""
    data = page_file(b"", page_size=SIZE, pages_listed=9)
    fs = MemoryFileSystem({PATH: bytes(data[: 6 * SIZE + rest]).ljust(6 * SIZE + rest, b"\0")})
    assert kept_of(fs, 40) == set(range(40))


GHOST = encode_add(3, 77, 999, ROW) + encode_commit(3)
HELD = [(SECTOR, GHOST), *((at, b"\x08") for at in (LARGE // 2 - 1, LARGE // 2, LARGE - 2))]


@pytest.mark.parametrize(("at", "held"), HELD, ids=["a commit", "middle", "half", "end"])
def test_what_free_pages_held_spoils_no_page_of_the_log(at: int, held: bytes) -> None:
    """The engine leaves it there, and a page with a short record is not written to its end."""
    fs = MemoryFileSystem()
    PageStoreFile.create(PATH, page_size=LARGE, fs=fs).close()
    stale = bytearray(LARGE)
    stale[at : at + len(held)] = held
    with contextlib.closing(fs.open(PATH)) as file:
        file.pwrite(bytes(stale * 40), file.size())
    assert kept_of(fs, 20) == set(range(20))


@pytest.mark.parametrize("page", [-1, -100_000, 0, 1, 2, 3, 4, 1 << 30])
@pytest.mark.parametrize("carry", [False, True])
def test_a_list_with_impossible_pages_is_damage(page: int, carry: bool) -> None:
    data = a_log()
    trunk = Trunk(5, 5, 7, 0, (6, 7, 8, page))
    data[5 * SIZE : 6 * SIZE] = layout.encode_trunk(trunk, SIZE)
    with pytest.raises(CorruptLogError, match="lists page"):
        open_for_writing(bytes(data), carry=carry)


@pytest.mark.parametrize("page", [-1, -100_000, 0, 1, 2, 1 << 30])
@pytest.mark.parametrize("carry", [False, True])
def test_an_image_of_an_impossible_page_is_damage(page: int, carry: bool) -> None:
    data = page_file(encode_undo(page, None) + encode_commit(3), page_size=SIZE)
    with pytest.raises(CorruptLogError, match="image of page"):
        open_for_writing(bytes(data), carry=carry)


def test_numbers_of_a_header_at_their_end_are_damage() -> None:
    for header in (
        VariableHeader((1 << 63) - 1, 7, 5, 6),
        VariableHeader(1, (1 << 31) - 1, 0, 0),
    ):
        data = a_log()
        data[SIZE : 3 * SIZE] = layout.encode_variable_header(header, SIZE) * 2
        with pytest.raises(CorruptLogError, match="no number can follow"):
            open_for_writing(bytes(data), carry=False)


def _pieces(size: int) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    kinds = st.sampled_from(("bit", "byte", "sealed", "swap", "zero", "cut"))
    places, values = st.integers(0, size - 1), st.integers(0, 0xFFFF)
    return st.lists(st.tuples(kinds, places, values), min_size=1, max_size=6)


def damaged(data: bytearray, pieces: list[tuple[str, int, int]], size: int) -> bytes:
    """Return the file with bits and bytes changed, pages swapped, sealed again or zeroed, cut."""
    for kind, where, value in pieces:
        at = where % max(len(data), 1)
        page, other = at // size, value % max(len(data) // size, 1)
        here, there = (slice(one * size, (one + 1) * size) for one in (page, other))
        if not data or len(data[here]) < size:
            continue
        if kind == "bit":
            data[at] ^= 1 << value % 8
        elif kind == "byte":
            data[at] = value & 0xFF
        elif kind == "sealed":
            data[at] = value & 0xFF
            if page in layout.VARIABLE_HEADER_PAGES:
                fields = layout.VARIABLE_HEADER.unpack_from(data, page * size)[1:]
                header = VariableHeader(*fields)
                data[here] = layout.encode_variable_header(header, size)
            elif page:
                data[here] = layout.seal(bytearray(data[here]), page)
        elif kind == "swap":
            data[here], data[there] = data[there], data[here]
        elif kind == "zero":
            data[here] = bytes(size)
        else:
            del data[at:]
    return bytes(data)


@given(_pieces(len(a_log())), st.booleans())
def test_a_damaged_log_is_opened_or_refused(
    pieces: list[tuple[str, int, int]], carry: bool
) -> None:
    data = damaged(a_log(), pieces, SIZE)
    documented(lambda: open_for_writing(data, carry=carry))


@given(_pieces(len(a_log())))
def test_a_damaged_role_is_opened_or_refused(pieces: list[tuple[str, int, int]]) -> None:
    data = damaged(a_log(), pieces, SIZE)
    documented(lambda: open_role(data))


@given(_pieces(1 << 20))
def test_a_damaged_database_is_opened_or_refused(pieces: list[tuple[str, int, int]]) -> None:
    data = damaged(bytearray(_store()[1]), pieces, 4096)
    documented(lambda: open_store(data))
