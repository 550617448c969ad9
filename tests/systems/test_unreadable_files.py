"""Opening a log whose files cannot be read just now never harms what they hold."""

from __future__ import annotations

import errno
import gzip
import shutil
from pathlib import Path

import pytest

from tallystick import explain
from tallystick.errors import TallystickError
from tallystick.storage.local import LOCAL
from tallystick.testing import CHANGES, READS, Fault, FaultyFileSystem, MemoryFileSystem
from tests.fixtures import fixture_dir
from tests.systems.live_logs import LIVE

NUMBERS = {1, 2, 3, 4, 5}
NTH_MAX = 30


def _written(name: str) -> dict[str, bytes]:
    fs = MemoryFileSystem()
    log = LIVE[name](fs, "/log")
    for number in NUMBERS:
        log.put(number)
    log.close()
    return fs.contents()


def test_a_segment_that_cannot_be_read_is_no_unused_one_without_the_control_block() -> None:
    before = {path: data for path, data in _written("tally").items() if "control" not in path}
    for nth in range(1, 8):
        fs = FaultyFileSystem(MemoryFileSystem(before), Fault(nth, {"pread"}, lasting=True))
        with pytest.raises(TallystickError):
            LIVE["tally"](fs, "/log")
        assert isinstance(fs.inner, MemoryFileSystem)
        assert fs.inner.contents() == before


@pytest.mark.sampled(5)
@pytest.mark.parametrize("error", [errno.EMFILE, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("lasting", [True, False])
@pytest.mark.parametrize("name", LIVE)
def test_a_file_that_cannot_be_read_while_opening_keeps_its_records(
    name: str, lasting: bool, error: int
) -> None:
    before = _written(name)
    struck = 0
    for calls in ({"open"}, {"pread"}, READS, READS | CHANGES):
        for nth in range(1, NTH_MAX):
            fs = FaultyFileSystem(
                MemoryFileSystem(before), Fault(nth, calls, error, lasting=lasting)
            )
            try:
                LIVE[name](fs, "/log").close()
            except TallystickError:
                struck += 1
            memory = fs.inner
            assert isinstance(memory, MemoryFileSystem)
            found = LIVE[name](MemoryFileSystem(memory.contents()), "/log")
            assert found.numbers() == NUMBERS, f"{calls}, call {nth}"
            found.close()
    assert struck


UNREAD = {
    "bitronix": ("committed-2pc", "*.tlog*"),
    "cloudtran": ("prefix-order", "**/*.ctlog*"),
    "derby": ("", "log*.dat*"),
    "tally": ("", "*[0-9].tally"),
}


def _copied(system: str, folder: Path) -> Path:
    if not UNREAD[system][0]:
        folder.mkdir()
        log = LIVE[system](LOCAL, str(folder))
        for number in range(1, 200):
            log.put(number)
        log.close()
    else:
        shutil.copytree(fixture_dir(system) / UNREAD[system][0], folder)
    return folder


@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("system", UNREAD)
def test_a_file_that_cannot_be_read_is_not_one_that_is_gone(
    system: str, which: int, tmp_path: Path
) -> None:
    root = _copied(system, tmp_path / "log")
    files = sorted(root.glob(UNREAD[system][1]))
    assert len(files) > 1
    files[which].unlink()
    files[which].symlink_to(files[which].name)  # a loop: what opens it is refused
    (verdict,) = explain(root).logs
    assert (verdict.judgement.answer, verdict.judgement.reason) == ("cannot-tell", "unreadable")
    assert files[which].name in verdict.judgement.text


@pytest.mark.parametrize("system", ["bitronix", "cloudtran", "derby"])
def test_our_own_limit_of_unpacking_is_no_fault_of_the_log(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _copied(system, tmp_path / "log")
    for file in root.glob(UNREAD[system][1]):
        if file.suffix != ".gz":
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    monkeypatch.setenv("TALLYSTICK_UNPACKED_MAX", "1000")
    (verdict,) = explain(root).logs
    assert (verdict.judgement.answer, verdict.judgement.reason) == ("cannot-tell", "unreadable")


def test_a_database_that_cannot_be_read_says_nothing_of_the_one_beside_it(tmp_path: Path) -> None:
    case = fixture_dir("h2") / "committed-512"
    (database,) = [one for one in case.rglob("*.h2.db*") if one.is_file()]
    end = database.name[database.name.index(".") :]
    shutil.copy(database, tmp_path / f"bank1{end}")
    (alone,) = explain(tmp_path).logs
    (tmp_path / f"bank2{end}").symlink_to(f"bank2{end}")
    (beside,) = explain(tmp_path).logs
    assert beside.judgement == alone.judgement
