"""Parts of a log and the way to a record cost the ends of segments, not their groups."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.storage.files import FileSystem
from tallystick.storage.source import ByteSource, read_part
from tallystick.systems.protocol import Split
from tallystick.systems.tally.columns import splits
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.read.files import Catalog, access_through
from tallystick.testing import MemoryFileSystem
from tests.systems.tally.build import FOLDER, reading, segments_of_plain, tiny_log


class Cost:
    """A reach that counts the bytes it reads, and opens no file whole."""

    def __init__(self, fs: FileSystem) -> None:
        self.bytes = 0
        self._within = access_through(fs)
        self.reach = replace(self._within, part=self._part, open=self._open)

    def _part(self, path: str, offset: int, size: int) -> bytes:
        part = self._within.part(path, offset, size)
        self.bytes += len(part)
        return part

    def _open(self, path: str) -> ByteSource:
        raise AssertionError(f"{path} is opened whole")


def _long() -> tuple[MemoryFileSystem, Catalog]:
    """Two sealed segments of 2,000 groups, and the beginning of a third one."""
    fs = MemoryFileSystem()
    settings = Settings(segment_size=1 << 20, preallocate=False, idle_mark_s=None)
    log = TallyLog(FOLDER, settings=settings, fs=fs)
    while log.last_segment < 3:
        log.append(b"x" * 100).wait()
    log.close()
    return fs, reading(fs).catalog


def test_splits_and_seeks_read_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    fs, catalog = _long()
    for read in (64 << 10, 4 << 10):  # at one go, and when the index is longer
        monkeypatch.setattr(splits, "_INDEX_READ", read)
        cost = Cost(fs)
        assert len(splits.splits_of(catalog, cost.reach, 256 << 10)) == 4 + 4 + 1
        assert cost.bytes <= 3 * (64 << 10)
        for lsn in (1, 700, 3000):
            _, due = splits.seek(catalog, cost.reach, lsn=lsn) or (None, None)
            assert due is not None
            assert due.lsn == lsn
        assert splits.seek(catalog, cost.reach, lsn=10**9) == (catalog.segments[-1], None)


def test_reading_resumes_at_the_group_of_the_last_record_read() -> None:
    one = reading(segments_of_plain())
    for path, life in one.lives().items():
        ends = [row.offset + row.length for row in one.records() if row.file == path]
        for last in (0, *ends, life.size):
            begin = one.resume(path, last)
            split = Split(path, begin, life.size)
            found = [
                offset + length
                for batch in one.batches(split)
                for offset, length in zip(
                    batch["offset"].to_pylist(), batch["length"].to_pylist(), strict=True
                )
            ]
            wanted = [end for end in ends if end >= min(last, ends[-1])]
            assert found[-len(wanted) :] == wanted
            sealed = path != list(one.lives())[-1]
            assert len(found) <= len(wanted) + 1 if sealed else found == ends


@pytest.mark.parametrize("place", [-1, -100, -200, -300])
def test_damaged_index_costs_speed_only(place: int) -> None:
    fs = segments_of_plain()
    files = fs.contents()
    path = f"{FOLDER}/0000000000000001.tally"
    damaged = bytearray(files[path])
    damaged[place] ^= 1
    one = reading(MemoryFileSystem(files | {path: damaged}))
    parts = [split for split in one.splits(4000) if split.file == path]
    assert [(split.begin, split.end) for split in parts] == [(0, 16 << 10)]
    file, due = splits.seek(one.catalog, one._access, lsn=5) or (None, None)
    assert file is not None
    assert (file.path, due) == (path, None)


def test_part_of_a_file_is_the_same_however_it_is_packed(tmp_path: Path) -> None:
    data = bytes(range(256)) * 9
    (tmp_path / "plain").write_bytes(data)
    (tmp_path / "packed.gz").write_bytes(gzip.compress(data))
    for name in ("plain", "packed.gz"):
        for offset, size in ((0, 5), (300, 20), (2300, 50), (9999, 3)):
            assert read_part(str(tmp_path / name), offset, size) == data[offset : offset + size]


def test_times_never_go_back_where_all_older_groups_were_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    log.append(b"earlier").wait()
    log.roll()
    assert log.reclaim(log.next_lsn) == [1]
    before = log._appender.at.time_us
    log.close()
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000)
    log = tiny_log(fs)
    log.append(b"later").wait()
    log.close()
    (later,) = reading(fs).records()
    assert (later.body, later.time) == (b"later", before)
