"""What reading a log costs in memory: ten times the log, the same peak.

Logs are made by our own writers, with nothing left open in them. Files are mapped, as large ones
are, so that the peak is what the reader itself holds.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.reading.discovery import discover
from tallystick.storage import source
from tallystick.systems.bitronix.format.layout import make_gtrid
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.bitronix.runs import chunk as bitronix_chunk
from tallystick.systems.bitronix.runs import transactions as bitronix_states
from tallystick.systems.cloudtran.format.entries import Operation, OperationKind
from tallystick.systems.cloudtran.live.log import BlockLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.cloudtran.runs import chunk as cloudtran_chunk
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import (
    compressed_int,
    compressed_long,
    format_id,
)
from tallystick.systems.derby.live.log import LogToFile
from tallystick.systems.h2.format.values.encode import encode_row
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.log import PageLog
from tallystick.systems.h2.runs import chunk as h2_chunk
from tallystick.systems.jboss.live.log import CircularJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.protocol import LogReading, ReadOptions
from tallystick.systems.registry import system
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tests.kit import read_in_runs
from tests.systems.jboss.build import add, image, write

SMALL, LARGE = 600, 6000
"""Transactions in the two logs."""
BODY = bytes(range(250))
DIFFERENCE_MAX = 384 << 10
"""Bytes by which the two peaks may differ; the logs differ by more than two million."""
WINDOWS = ((bitronix_chunk, "WINDOW"), (h2_chunk, "WINDOW"), (cloudtran_chunk, "CHUNK_BYTES"))
"""What is looked at in one go; small here, so that the small log fills it too."""


def bitronix(folder: Path, count: int) -> None:
    journal = DiskJournal(str(folder), max_log_size=16 << 20, forced_write_enabled=False)
    for number in range(count):
        gtrid = make_gtrid("node", 1_700_000_000_000 + number, number)
        for status in (0, 1, 2, 8, 3):
            journal.log(status, gtrid, ("jdbc/orders", "jms/queue") if status else ())
    journal.close()


def cloudtran(folder: Path, count: int) -> None:
    settings = LogSettings(file_size_mb=64, sync="none")
    with BlockLog(str(folder), settings, disposer=None) as log:
        for turn in range(count):
            operation = Operation(None, OperationKind.INSERT, "orders", b"key", BODY)
            number, ticket = log.persisting(("orders-db",), [operation], "reference")
            log.persisted(number, ("orders-db",))
            if turn % 50 == 49:
                ticket.wait()


def derby(folder: Path, count: int, switch_interval: int = 1 << 20) -> None:
    page = b"".join(map(compressed_long, (0, 1168, 1, 0)))
    insert = format_id(operations.INSERT) + page + compressed_int(6) + b"\0\0\0\1"
    with LogToFile(str(folder), switch_interval=switch_interval) as log:
        for _ in range(count):
            number = log.begin()
            log.log(number, insert, b"\0\6\1\x20\0\xfa" + BODY)
            log.submit_commit(number)


def h2(folder: Path, count: int) -> None:
    path = folder / "db.h2.db"
    PageStoreFile.create(str(path)).close()
    with PageStoreFile(str(path)) as store:
        log = PageLog(store)
        log.open_for_writing()
        for number in range(count):
            row = encode_row([number, BODY.decode("latin-1"), None])
            log.log_add_or_remove_row(3, 16, number, row)
            log.commit(3)
        log.close()


def jboss(folder: Path, count: int) -> None:
    with CircularJournal(str(folder), JournalSettings(file_size=64 << 20)) as journal:
        for number in range(count):
            journal.append_add_record(number, 1, BODY)
            journal.append_delete_record(number)


def tally(folder: Path, count: int) -> None:
    log = TallyLog(str(folder), settings=Settings(segment_size=64 << 20))
    for number in range(count):
        log.append(BODY)
        if number % 10 == 9:
            log.flush()
    log.close()


MAKERS: dict[str, Callable[[Path, int], None]] = {
    one.__name__: one for one in (bitronix, cloudtran, derby, h2, jboss, tally)
}


def peak(folder: Path, read: Callable[[LogReading], object]) -> int:
    """Most bytes held at once while a log is read, beyond those held before."""
    (log,) = discover(folder).logs
    read(system(log.system).read(log, ReadOptions()))  # imports and compiles
    gc.collect()  # so that what waits for it comes as late in each measurement
    tracemalloc.start()
    try:
        read(system(log.system).read(log, ReadOptions()))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _batches(reading: LogReading) -> None:
    for _ in reading.batches(rows=500):
        pass


@pytest.fixture(scope="module", params=MAKERS)
def logs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folders = []
    for count in (SMALL, LARGE):
        folders.append(tmp_path_factory.mktemp(request.param))
        MAKERS[request.param](folders[-1], count)
    return folders


@pytest.mark.sampled(3)
def test_batches_of_ten_times_the_log_take_no_more_memory(
    logs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "READ_WHOLE_MAX", 0)
    for module, name in WINDOWS:
        monkeypatch.setattr(module, name, 64 << 10)
    small, large = (peak(folder, _batches) for folder in logs)
    assert large < small + DIFFERENCE_MAX


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("in_runs", "transactions"), [(True, 4_000), (False, 400)])
@pytest.mark.parametrize("make", [bitronix, cloudtran])
def test_a_verdict_on_ten_times_the_log_takes_no_more_memory(
    make: Callable[[Path, int], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    transactions: int,
    *,
    in_runs: bool,
) -> None:
    monkeypatch.setattr(source, "READ_WHOLE_MAX", 0)
    monkeypatch.setattr(bitronix_states, "CLOSED_MAX", 100)
    monkeypatch.setattr(bitronix_chunk, "WINDOW", 64 << 10)
    monkeypatch.setattr(cloudtran_chunk, "CHUNK_BYTES", 64 << 10)
    read_in_runs(monkeypatch, always=in_runs)
    peaks = []
    for count in (transactions // 10, transactions):
        make(tmp_path / str(count), count)
        peaks.append(peak(tmp_path / str(count), lambda reading: reading.verdict()))
    assert peaks[1] < peaks[0] + 50 * transactions  # they have 400 bytes each


@pytest.mark.parametrize("shape", ["g1c", "g1d", "g2", "g3"])
@pytest.mark.parametrize("fill", [b"J", b"\0"])
def test_a_verdict_on_files_that_are_nearly_all_fill_holds_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str, fill: bytes
) -> None:
    monkeypatch.setattr(source, "READ_WHOLE_MAX", 0)
    read_in_runs(monkeypatch)
    size = 32 << 20
    files = {1: image(shape, 1, [add(1)], size, fill), 2: image(shape, 2, [], size, fill)}
    write(tmp_path, shape, files | {3: fill * size})
    assert peak(tmp_path, lambda reading: (reading.verdict(), reading.files())) < 4 << 20
