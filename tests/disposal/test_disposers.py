"""Disposers, and when they are called: oldest first, again after a failure, never twice done."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from tallystick.disposal.archive import ArchiveDisposer
from tallystick.disposal.disposers import (
    CommandDisposer,
    CompressDisposer,
    DeleteDisposer,
    FunctionDisposer,
    MoveDisposer,
    disposer_of,
)
from tallystick.disposal.retention import Chain, Copying, KeepForReader, ReaderOffset
from tallystick.disposal.worker import Disposal, LogDisposer, Postponed
from tallystick.errors import LogClosedError, LogWriteError

CONTENT = bytes(range(256)) * 1000


class Log:
    """A log whose files may all go."""

    def __init__(self, folder: Path, count: int) -> None:
        self.paths = [str(folder / f"log-{number}") for number in range(count)]
        for path in self.paths:
            Path(path).write_bytes(CONTENT)
        self.gone: list[str] = []

    def disposable(self) -> Sequence[str]:
        return [path for path in self.paths if path not in self.gone]

    def disposed(self, path: str) -> None:
        self.gone.append(path)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def run(log: Log, disposer: LogDisposer) -> Disposal:
    return Disposal(log, disposer, retry_seconds=0.005, poll_seconds=0.005)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "log" / "translog-1.ctlog"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


# -- when --------------------------------------------------------------------------------


def test_files_go_oldest_first_on_a_thread_of_their_own(tmp_path: Path) -> None:
    log = Log(tmp_path, 3)
    seen = []

    def take(path: str) -> None:
        seen.append((path, threading.current_thread().name))
        Path(path).unlink()

    disposal = run(log, FunctionDisposer(take))
    until(lambda: len(log.gone) == 3)
    disposal.close(1)
    assert seen == [(path, "log disposal") for path in log.paths]


def test_failure_keeps_the_file_and_the_later_ones_until_it_succeeds(tmp_path: Path) -> None:
    log = Log(tmp_path, 3)
    calls: list[str] = []
    broken = threading.Event()
    broken.set()

    def take(path: str) -> None:
        calls.append(path)
        if broken.is_set():
            raise RuntimeError("the archive is away")
        Path(path).unlink()

    disposal = run(log, FunctionDisposer(take))
    until(lambda: disposal.counters.failed >= 3)
    assert set(calls) == {log.paths[0]}
    assert "archive is away" in disposal.counters.last_error
    broken.clear()
    until(lambda: len(log.gone) == 3)
    disposal.close(1)
    assert log.gone == log.paths


def test_file_left_behind_counts_as_failure(tmp_path: Path) -> None:
    log = Log(tmp_path, 1)
    disposal = run(log, FunctionDisposer(lambda path: None))  # noqa: ARG005 - it does nothing
    until(lambda: disposal.counters.failed > 0)
    disposal.close(0)
    assert log.gone == []
    assert "left" in disposal.counters.last_error


def test_file_that_is_gone_already_is_fine_and_not_offered(tmp_path: Path) -> None:
    log = Log(tmp_path, 2)
    Path(log.paths[0]).unlink()
    seen: list[str] = []

    def take(path: str) -> None:
        seen.append(path)
        Path(path).unlink()
        raise FileNotFoundError(path)  # gone during the call

    disposal = run(log, FunctionDisposer(take))
    until(lambda: len(log.gone) == 2)
    disposal.close(1)
    assert seen == [log.paths[1]]
    assert disposal.counters.failed == 0


def test_prompts_do_not_shorten_the_delay_after_a_failure(tmp_path: Path) -> None:
    log = Log(tmp_path, 1)
    calls = []

    def take(path: str) -> None:
        calls.append(time.monotonic())
        raise ConnectionError(path)

    disposal = Disposal(log, FunctionDisposer(take), retry_seconds=0.02, poll_seconds=0.001)
    while len(calls) < 5:
        disposal.prompt()
        time.sleep(0.002)
    disposal.close(0)
    gaps = [later - earlier for earlier, later in pairwise(calls[:5])]
    assert all(gap >= 0.04 * 2**index for index, gap in enumerate(gaps))


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_disposer_that_wants_to_end_the_program_has_only_failed(
    tmp_path: Path, error: BaseException
) -> None:
    log = Log(tmp_path, 1)

    def take(path: str) -> None:
        if disposal.counters.failed < 2:
            raise error
        Path(path).unlink()

    disposal = run(log, FunctionDisposer(take))
    until(lambda: log.gone == log.paths)
    disposal.close(1)
    assert disposal.counters.failed == 2


def test_log_that_cannot_tell_is_asked_again_and_it_shows(tmp_path: Path) -> None:
    class Broken(Log):
        failures = 3

        def disposable(self) -> Sequence[str]:
            if self.failures:
                self.failures -= 1
                raise LogWriteError("not now")
            return super().disposable()

    log = Broken(tmp_path, 2)
    disposal = run(log, DeleteDisposer())
    until(lambda: log.gone == log.paths)
    disposal.close(1)
    assert disposal.counters.failed == 3
    assert "not now" in disposal.counters.last_error


def test_disposer_that_returns_after_the_log_is_closed_ends_without_a_word(tmp_path: Path) -> None:
    entered, release = threading.Event(), threading.Event()

    class Closing(Log):
        def disposed(self, path: str) -> None:
            raise LogClosedError("closed", file=path)

    def take(path: str) -> None:
        entered.set()
        assert release.wait(30)
        Path(path).unlink()

    log = Closing(tmp_path, 1)
    disposal = run(log, FunctionDisposer(take))
    assert entered.wait(5)
    disposal.close(0)
    release.set()
    until(lambda: disposal.counters.failed > 0)  # and no thread ended by an exception


def test_postponed_file_is_asked_for_again_and_is_no_failure(tmp_path: Path) -> None:
    log = Log(tmp_path, 1)
    ready = threading.Event()

    def take(path: str) -> None:
        if not ready.is_set():
            raise Postponed
        Path(path).unlink()

    disposal = run(log, FunctionDisposer(take))
    until(lambda: disposal.counters.postponed > 2)
    ready.set()
    until(lambda: log.gone == log.paths)
    disposal.close(1)
    assert disposal.counters.failed == 0


def test_close_does_not_wait_for_a_disposer_that_hangs(tmp_path: Path) -> None:
    log = Log(tmp_path, 1)
    entered, release = threading.Event(), threading.Event()

    def take(path: str) -> None:
        entered.set()
        release.wait(30)
        Path(path).unlink()

    disposal = run(log, FunctionDisposer(take))
    assert entered.wait(5)
    began = time.monotonic()
    disposal.close(0.05)
    assert time.monotonic() - began < 2
    release.set()


# -- what --------------------------------------------------------------------------------


def test_delete_and_command_take_the_file_away(file: Path) -> None:
    DeleteDisposer().dispose(str(file))
    assert not file.exists()
    file.write_bytes(b"again")
    CommandDisposer(["rm"]).dispose(str(file))
    assert not file.exists()


def test_move_accepts_an_identical_copy_and_refuses_another(file: Path, tmp_path: Path) -> None:
    disposer = MoveDisposer(str(tmp_path / "kept"))
    disposer.dispose(str(file))
    assert (tmp_path / "kept" / file.name).read_bytes() == CONTENT
    file.write_bytes(CONTENT)
    disposer.dispose(str(file))
    assert not file.exists()
    file.write_bytes(b"other")
    with pytest.raises(FileExistsError):
        disposer.dispose(str(file))
    assert file.read_bytes() == b"other"


def test_compress_leaves_a_file_that_readers_take(file: Path, tmp_path: Path) -> None:
    disposer = CompressDisposer(str(tmp_path / "kept"))
    disposer.dispose(str(file))
    packed = tmp_path / "kept" / f"{file.name}.gz"
    assert gzip.decompress(packed.read_bytes()) == CONTENT
    assert packed.stat().st_size < len(CONTENT)
    file.write_bytes(CONTENT)
    disposer.dispose(str(file))
    file.write_bytes(b"other")
    with pytest.raises(FileExistsError):
        disposer.dispose(str(file))


def test_archive_on_a_local_folder_is_verified_before_the_file_goes(
    file: Path, tmp_path: Path
) -> None:
    disposer = ArchiveDisposer(str(tmp_path / "archive"))
    disposer.dispose(str(file))
    assert [path.name for path in (tmp_path / "archive").iterdir()] == [file.name]
    file.write_bytes(CONTENT)
    disposer.dispose(str(file))
    assert not file.exists()
    file.write_bytes(b"other")
    with pytest.raises(FileExistsError):
        disposer.dispose(str(file))
    assert file.exists()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_archive_on_an_object_store(file: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    disposer = ArchiveDisposer("s3://logs/shop", options={"endpoint_url": s3})
    disposer.dispose(str(file))
    file.write_bytes(CONTENT)
    disposer.dispose(str(file))
    assert not file.exists()
    file.write_bytes(b"other")
    with pytest.raises(FileExistsError):
        disposer.dispose(str(file))


def test_archive_that_cannot_be_reached_keeps_the_file(file: Path) -> None:
    disposer = ArchiveDisposer("http://127.0.0.1:9/nothing")
    with pytest.raises(Exception, match=r".*"):
        disposer.dispose(str(file))
    assert file.read_bytes() == CONTENT


def test_reader_holds_files_back_until_it_has_passed_them(tmp_path: Path) -> None:
    log = Log(tmp_path, 3)
    offset = ReaderOffset(str(tmp_path / "offsets"), "stream")
    disposal = run(log, KeepForReader(offset, DeleteDisposer()))
    until(lambda: disposal.counters.postponed > 1)
    offset.commit("log-1")
    until(lambda: log.gone == log.paths[:2])
    offset.commit("log-0")
    assert offset() == "log-1"
    disposal.close(1)
    assert Path(log.paths[2]).exists()


def test_chain_archives_twice_and_then_deletes(file: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    chain = Chain(
        [Copying(MoveDisposer(str(one))), Copying(CompressDisposer(str(two))), DeleteDisposer()]
    )
    chain.dispose(str(file))
    assert not file.exists()
    assert (one / file.name).read_bytes() == CONTENT
    assert (two / f"{file.name}.gz").exists()


class Own:
    """A disposer as a user would write it."""

    def dispose(self, path: str) -> None:
        Path(path).unlink()


@pytest.mark.parametrize("disposer", [Own, Own(), f"{__name__}.Own", Own().dispose, "delete"])
def test_disposer_may_be_a_class_an_object_a_function_or_a_name(
    disposer: LogDisposer | str, file: Path
) -> None:
    disposer_of(disposer).dispose(str(file))
    assert not file.exists()


class Demanding:
    """A disposer that cannot be made from its name alone."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket


@pytest.mark.parametrize(
    "name", ["nothing", "no.such.module.Class", "os.sep", f"{__name__}.Demanding"]
)
def test_name_that_leads_to_no_disposer_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        disposer_of(name)
