"""Reading at a limited rate, from the disk, without filling the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import pytest

from tallystick import posix
from tallystick.errors import LogUnreadableError
from tallystick.storage import pace
from tallystick.storage.pace import PIECE, Pace, paced
from tallystick.storage.source import READ_WHOLE_MAX, open_source, read_head, read_part


class Time:
    """A clock that only sleeping moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize("files", [1, 7])
def test_the_rate_is_kept_over_all_files_and_a_pause_saves_nothing_up(
    tmp_path: Path, files: int
) -> None:
    time, size = Time(), 3 * PIECE + 100
    pace = Pace(1_000_000, sleep=time.sleep, clock=time.clock)
    for number in range(files):
        (tmp_path / str(number)).write_bytes(bytes(size))
    for _ in range(2):
        before = time.now
        with paced(pace):
            for number in range(files):
                with open_source(str(tmp_path / str(number))) as source:
                    assert source.size == size
        assert time.now - before == pytest.approx(files * size / 1_000_000)
        time.now += 1000
    assert pace.total == 2 * files * size


def test_packed_files_are_paced_by_what_the_disk_holds(tmp_path: Path) -> None:
    import gzip

    packed = gzip.compress(os.urandom(1000) * 1000)
    (tmp_path / "a.gz").write_bytes(packed)
    pace = Pace()
    with paced(pace), open_source(str(tmp_path / "a.gz")) as source:
        assert source.size == 1_000_000
    assert pace.total == len(packed)


def test_heads_and_parts_come_from_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(bytes(10_000))
    dropped: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *call: dropped.append(call[1:]))
    pace = Pace()
    with paced(pace):
        assert len(read_head(str(tmp_path / "a"), 4096)) == 4096
        assert len(read_part(str(tmp_path / "a"), 5000, 100)) == 100
        assert dropped == [(0, 0, os.POSIX_FADV_DONTNEED)] * 2
    assert pace.total == 4196
    assert len(dropped) == 3, "and once at the end"


def test_a_file_is_read_once_in_a_block_and_again_where_it_has_changed(tmp_path: Path) -> None:
    file, pace = tmp_path / "file", Pace()
    file.write_bytes(bytes(1000))
    with paced(pace):
        for _ in range(3):
            open_source(str(file)).close()
        assert pace.total == 1000
        file.write_bytes(bytes(1001))
        open_source(str(file)).close()
        assert pace.total == 2001
    with paced(pace):
        open_source(str(file)).close()
    assert pace.total == 3002


def test_outside_of_the_block_nothing_is_paced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    pace = Pace()
    with paced(pace):
        pass
    with open_source(str(tmp_path / "a")):
        assert pace.total == 0


def _resident(path: Path) -> int:
    """How many pages of a file are in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages = -(-len(mapped) // mmap.PAGESIZE)
        flags = (ctypes.c_ubyte * pages)()
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), flags) == 0
        return sum(flag & 1 for flag in flags)


@pytest.mark.parametrize("size", [3 << 20, READ_WHOLE_MAX + (1 << 20)], ids=["read", "mapped"])
def test_what_was_read_leaves_the_page_cache(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(os.urandom(1 << 20) * (size >> 20))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if _resident(path):
        pytest.skip("this file system keeps its files in memory: nothing can leave the cache")
    path.read_bytes()
    assert _resident(path)
    with paced(Pace()), open_source(str(path)) as source:
        assert source.data[size - 1] is not None
        assert sum(source.data[:: mmap.PAGESIZE]) > 0
    assert _resident(path) == 0


def test_what_the_disk_cannot_read_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(bytes(10 * PIECE))
    real = posix.pread

    def broken(descriptor: int, size: int, offset: int) -> bytes:
        if offset >= 5 * PIECE:
            raise OSError(5, "Input/output error")
        return real(descriptor, size, offset)

    monkeypatch.setattr(pace, "pread", broken)
    with paced(Pace()), pytest.raises(LogUnreadableError, match="Input/output error"):
        open_source(str(tmp_path / "a"))
