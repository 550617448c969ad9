"""Of many files those read last are held; the others are opened again when they are asked for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tallystick.errors import FileShrankError, LogUnreadableError
from tallystick.storage import recent
from tallystick.storage.recent import RecentSource, RecentSources
from tallystick.storage.source import ByteSource, open_source

SIZE = 1000
COUNT = 12


@pytest.fixture(autouse=True)
def five_files_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "HELD_MAX", 5 * SIZE)


def opened(folder: Path) -> tuple[list[RecentSource], Counter[str]]:
    """Files with bytes of their own, and how often each was opened, by name."""
    count = Counter[str]()

    def counted(path: str) -> ByteSource:
        count[Path(path).name] += 1
        return open_source(path)

    sources = RecentSources(counted)
    for number in range(COUNT):
        (folder / f"log{number}.dat").write_bytes(bytes([number]) * SIZE)
    return [sources.open(str(folder / f"log{number}.dat")) for number in range(COUNT)], count


def test_each_file_has_its_own_bytes_however_often_it_is_asked_for(tmp_path: Path) -> None:
    files, count = opened(tmp_path)
    for number in (*range(COUNT), *range(COUNT), 3, 11, 3):
        assert bytes(files[number].data) == bytes([number]) * SIZE
        assert bytes(files[number].part(10, 13)) == bytes([number]) * 3
        assert (files[number].size, files[number].name) == (SIZE, f"log{number}.dat")
    assert max(count.values()) > 1


def test_what_was_asked_for_last_is_not_opened_again(tmp_path: Path) -> None:
    files, count = opened(tmp_path)
    before = count.total()
    for number in range(COUNT - 1, COUNT - 6, -1):
        assert len(files[number].data) == SIZE
    assert count.total() == before
    assert all(len(files[number].data) == SIZE for number in (0, COUNT - 5))
    assert count.total() == before + 1
    assert files[COUNT - 1].data  # four others were asked for since
    assert count.total() == before + 2


def test_a_few_files_are_held_however_large_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "HELD_MAX", 0)
    files, count = opened(tmp_path)
    before = count.total()
    for _ in range(3):
        assert all(len(files[number].data) == SIZE for number in range(COUNT - 4, COUNT))
    assert count.total() == before


def test_a_part_of_a_file_that_is_not_held_does_not_read_the_others_bytes(tmp_path: Path) -> None:
    files, count = opened(tmp_path)
    before = count.total()
    assert bytes(files[0].part(0, 7)) == bytes(7)
    (tmp_path / "log0.dat").unlink()
    assert bytes(files[0].part(7, 7)) == b""
    assert count.total() == before


@pytest.mark.parametrize("left", [0, SIZE - 1])
def test_a_file_that_became_shorter_is_an_error(tmp_path: Path, left: int) -> None:
    files, _ = opened(tmp_path)
    (tmp_path / "log0.dat").write_bytes(bytes(left))
    with pytest.raises(FileShrankError, match=r"log0\.dat: it became shorter"):
        files[0].part(SIZE - 10, SIZE)
    with pytest.raises(FileShrankError, match=r"log0\.dat: it became shorter"):
        assert files[0].data


def test_a_file_that_grows_is_what_it_was(tmp_path: Path) -> None:
    files, _ = opened(tmp_path)
    (tmp_path / "log0.dat").write_bytes(bytes(SIZE + 10))
    assert bytes(files[0].data) == bytes(SIZE)


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    files, _ = opened(tmp_path)
    (tmp_path / "log0.dat").unlink()
    with pytest.raises(LogUnreadableError, match="vanished"):
        assert files[0].data


def test_opening_a_file_looks_at_no_others_however_many_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "HELD_MAX", 1 << 20)
    asked = 0

    def size(_: ByteSource) -> int:
        nonlocal asked
        asked += 1
        return SIZE

    monkeypatch.setattr(ByteSource, "size", property(size))
    sources = RecentSources(lambda path: ByteSource(path, memoryview(bytes(SIZE))))
    for number in range(2000):
        sources.open(f"/log/{number}")
    assert sources.held("/log/1000") is not None
    assert sources.held("/log/900") is None
    assert asked < 5 * 2000
