"""PageStoreFile: owner, headers, checksums, allocation."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.errors import CorruptLogError, LogLockedError, LogWriteError
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.log import PageLog

SIZE = 512


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "db.h2.db"
    PageStoreFile.create(str(path), page_size=SIZE).close()
    return path


@pytest.fixture
def store(path: Path) -> Iterator[PageStoreFile]:
    with PageStoreFile(str(path)) as store:
        yield store


def test_one_owner_at_a_time(path: Path, store: PageStoreFile) -> None:
    with pytest.raises(LogLockedError):
        PageStoreFile(str(path))
    store.close()
    PageStoreFile(str(path)).close()


def test_damaged_header_copy_is_repaired_by_the_next_write(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[SIZE + 9] ^= 1
    path.write_bytes(data)
    with PageStoreFile(str(path)) as store:
        PageLog(store, batch=8).open_for_writing()
        assert store.view().headers() == (store.header, store.header)
    data[2 * SIZE + 9] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLogError, match="both copies"):
        PageStoreFile(str(path))


def test_newer_version_is_not_written(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[52] = 4
    path.write_bytes(data)
    with pytest.raises(LogWriteError, match="another version"):
        PageStoreFile(str(path))


def test_page_with_a_wrong_checksum_is_not_handed_out(path: Path, store: PageStoreFile) -> None:
    data = bytearray(path.read_bytes())
    data[5 * SIZE - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLogError, match="page 4"):
        store.read_page(4)
    with pytest.raises(CorruptLogError, match="page 99"):
        store.read_page(99)


def test_impossible_page_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogWriteError, match="page size"):
        PageStoreFile.create(str(tmp_path / "x.h2.db"), page_size=1000)


def test_pages_are_allocated_once_lowest_first_and_never_the_free_lists(
    store: PageStoreFile,
) -> None:
    taken = [store.allocate() for _ in range(4100)]
    assert len(set(taken)) == len(taken)
    assert taken[0] == layout.FIRST_FREE_PAGE
    assert 3 + (SIZE - 3) * 8 not in taken
    store.release(taken[10:20])
    assert store.allocate() == taken[10]
    assert store.allocate(exclude={taken[11]}) == taken[12]
    assert store.allocate(after=taken[-1]) > taken[-1]


def test_growing_in_two_threads_never_makes_the_file_smaller(store: PageStoreFile) -> None:
    errors: list[BaseException] = []

    def smaller() -> None:
        try:
            store.grow(100)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=smaller)
    with store._mutex:
        thread.start()
        time.sleep(0.05)  # it has looked at the page count, or waits to
        store.grow(200)
    thread.join()
    assert not errors
    assert store.page_count == 200
    assert store.file.size() == 200 * SIZE
