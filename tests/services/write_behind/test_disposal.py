"""Files of a running service and their disposers: unreachable, failing, holding, killed."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

import tallystick
from tallystick.disposal import worker as when
from tallystick.disposal.archive import ArchiveDisposer
from tallystick.disposal.disposers import CompressDisposer, DeleteDisposer, MoveDisposer
from tallystick.disposal.retention import Chain, Copying, KeepForReader, ReaderOffset
from tallystick.disposal.worker import LogDisposer
from tallystick.records import Kind
from tallystick.services.write_behind import WriteBehind
from tallystick.storage.local import LOCAL
from tests.servers import free_port
from tests.services.write_behind.kit import SYSTEMS, Recorder, put, quick, small_log
from tests.services.write_behind.steps import Steps, run_until_step

BODY = bytes(range(256)) * 400


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the shortest delays of disposal."""
    monkeypatch.setattr(when.Disposal.__init__, "__kwdefaults__", {
        "fs": LOCAL, "retry_seconds": 0.02, "poll_seconds": 0.01,
    })  # fmt: skip


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def open_service(path: Path, system: str, disposer: Any, one: Recorder) -> WriteBehind:
    return WriteBehind(
        path / "spool",
        {"one": one},
        log=small_log(system, str(path / "spool")),
        settings=quick(dispose_on_close_seconds=0.5),
        disposer=disposer,
    )


def log_files(path: Path) -> set[str]:
    """Return the names of the files of the service's log."""
    names = {file.name for file in (path / "spool" / "log").iterdir()}
    return {name for name in names if name.startswith(("translog-", "0")) and "." in name}


def fill(behind: WriteBehind, count: int) -> None:
    """Commit so much that files roll, and wait until it is all applied."""
    for index in range(count):
        behind.commit([put(b"%d" % (index % 5), BODY)])
    assert behind.drain(20)


def no_work_is_left(path: Path, system: str) -> None:
    open_service(path, system, "delete", Recorder()).close()


@pytest.mark.parametrize("system", SYSTEMS)
def test_failing_disposer_keeps_files_does_not_block_commits_and_catches_up(
    tmp_path: Path, system: str
) -> None:
    broken, taken = threading.Event(), []
    broken.set()

    def take(path: str) -> None:
        if broken.is_set():
            raise ConnectionError("the archive is away")
        taken.append(Path(path).name)
        Path(path).unlink()

    one = Recorder()
    with open_service(tmp_path, system, take, one) as behind:
        fill(behind, 40)
        until(lambda: behind.disposals.failed >= 3)
        assert behind.disposals.disposed == 0
        fill(behind, 40)
        kept = log_files(tmp_path)
        broken.clear()
        until(lambda: behind.disposals.disposed >= 3)
    assert taken == sorted(taken)
    assert set(taken) <= kept
    assert one.numbers == list(range(1, 81))
    no_work_is_left(tmp_path, system)


@pytest.mark.parametrize("system", SYSTEMS)
def test_reader_of_a_running_service_holds_its_files_back(tmp_path: Path, system: str) -> None:
    offset = ReaderOffset(str(tmp_path / "offsets"), "stream")
    moved = tmp_path / "moved"
    with open_service(
        tmp_path, system, KeepForReader(offset, MoveDisposer(str(moved))), Recorder()
    ) as behind:
        fill(behind, 40)
        before = sorted(log_files(tmp_path))
        until(lambda: behind.disposals.postponed > 2)
        assert sorted(log_files(tmp_path)) == before
        offset.commit(before[0])
        until(lambda: behind.disposals.disposed == 1)
        (first,) = moved.iterdir()
        assert first.name.endswith(before[0])  # before it may stand whose log it is of
        offset.commit(before[-1])
        fill(behind, 10)
        until(lambda: behind.disposals.disposed >= 2)
    no_work_is_left(tmp_path, system)


@pytest.mark.parametrize("system", SYSTEMS)
def test_archived_files_and_those_that_are_left_hold_every_transaction(
    tmp_path: Path, system: str
) -> None:
    archive = tmp_path / "archive"
    disposer = Chain([Copying(CompressDisposer(str(archive))), DeleteDisposer()])
    with open_service(tmp_path, system, disposer, Recorder()) as behind:
        fill(behind, 40)
        until(lambda: behind.disposals.disposed >= 1)
        until(lambda: not behind._log.disposable())  # a disposed file is not read again
    numbers = set()
    for folder in (archive, tmp_path / "spool" / "log"):
        for record in tallystick.scan(folder, salvage=True):
            if record.kind is Kind.PERSISTING:
                numbers.add(record.transaction or record.record_id)
    assert numbers == set(range(1, 41))


def test_archive_unreachable_for_long_gets_every_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    port = free_port()
    options = {"endpoint_url": f"http://127.0.0.1:{port}", "use_listings_cache": False}
    disposer = ArchiveDisposer("s3://write-behind-archive/logs", options=options)
    one = Recorder()
    with open_service(tmp_path, "cloudtran", disposer, one) as behind:
        fill(behind, 30)
        until(lambda: behind.disposals.failed >= 2)
        kept = log_files(tmp_path)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=port)
        server.start()
        try:
            until(lambda: behind.disposals.disposed >= 1)
            found = {path.rpartition("/")[2] for path in disposer._connect().ls(disposer._root)}
        finally:
            server.stop()
        assert found <= kept
        fill(behind, 30)  # it is unreachable again
        failed = behind.disposals.failed
        until(lambda: behind.disposals.failed > failed)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=port)
        server.start()
        try:
            done = behind.disposals.disposed
            until(lambda: behind.disposals.disposed > done)
        finally:
            server.stop()
    assert one.numbers == list(range(1, 61))


DISPOSERS: dict[str, Callable[[Path], LogDisposer]] = {
    "move": lambda kept: MoveDisposer(str(kept)),
    "compress": lambda kept: CompressDisposer(str(kept)),
    "archive": lambda kept: ArchiveDisposer(str(kept)),
    "chain": lambda kept: Chain([Copying(MoveDisposer(str(kept))), DeleteDisposer()]),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DISPOSERS)
def test_disposer_killed_at_every_step_and_called_again_has_the_file_once(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "log").mkdir()
    file = tmp_path / "log" / "translog-1.ctlog"
    kept = tmp_path / "kept"
    disposer = DISPOSERS[name](kept)

    def copies() -> list[bytes]:
        found = [path for path in kept.glob("*") if not path.name.endswith(".part")]
        return [
            gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            for path in found
        ]

    def work(_: Steps) -> None:
        disposer.dispose(str(file))

    nth, killed = 1, True
    while killed:
        file.write_bytes(BODY)
        _, killed = run_until_step(nth, work)
        assert copies() == [BODY] or (not copies() and file.read_bytes() == BODY)
        if file.exists():
            disposer.dispose(str(file))
        assert copies() == [BODY]
        assert not file.exists()
        for path in kept.iterdir():
            path.unlink()
        nth += 1
    assert nth > 3
