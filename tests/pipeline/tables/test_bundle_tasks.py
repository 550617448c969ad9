"""One log in several tasks: its tables are those of one task, whatever the parts left open."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tallystick.pipeline import planning, task
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import RecordsLostError, find
from tallystick.pipeline.runner import Run
from tallystick.pipeline.tables.bundle_tasks import PARTS, BundleTasks
from tallystick.reading.tables import TABLES
from tallystick.services.journal import Journal
from tallystick.storage.local import LOCAL
from tallystick.systems.cloudtran.format.entries import Operation, OperationKind
from tallystick.systems.cloudtran.live.log import BlockLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.protocol import LogSource, NotClosedInPartsError
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.items import UnplacedEnding
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.reader import TallyReading
from tests.systems.h2.made_logs import file_of, long_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLIT_BYTES = 40_000
SETTINGS = Settings(segment_size=16 << 10, preallocate=False, idle_mark_s=None)


@pytest.fixture
def log(tmp_path: Path) -> LogSource:
    """A native log of overlapping transactions over some 20 segments."""
    folder = tmp_path / "log"
    log = TallyLog(str(folder), settings=SETTINGS, fs=LOCAL)
    for number in range(1, 200):
        log.submit(UnplacedRecord(Code.BEGIN, b"", number))
        for key in range(3):
            log.submit(UnplacedRecord(Code.ADD, bytes(60), number - key, number))
        end = UnplacedRecord(Code.ROLLBACK, b"", number - 2)
        log.submit(UnplacedEnding(Code.COMMIT, number - 2) if number % 5 else end)
        log.append(b"loose").wait()
    log.close()
    return _source(folder)


_RECORDS = ("records", "profile")
"""Tables in which a damaged log has more in parts: records after the damage."""


def _source(folder: Path) -> LogSource:
    (source,) = find([str(folder)]).logs
    return source


def _rows(folder: Path) -> list[str]:
    files = sorted(folder.glob("[!.]*"))
    return sorted(repr(row) for file in files for row in pq.read_table(file).to_pylist())


def _tasks(
    source: LogSource, out: Path, split_bytes: int = SPLIT_BYTES, mode: str = "permissive"
) -> BundleTasks:
    options = SourceOptions((), split_bytes=split_bytes, mode=mode)
    (bundle,) = planning.bundles([source], options)
    out.mkdir(exist_ok=True)
    return BundleTasks(bundle, "00000001-00000", str(out), options, "snappy", profile=True)


def _same(one: Path, other: Path, but: tuple[str, ...] = ()) -> None:
    for table in {*TABLES, "profile"} - set(but):
        ours, expected = _rows(one / table), _rows(other / table)
        assert len(ours) == len(expected), table
        for row, other_row in zip(ours, expected, strict=True):
            assert row == other_row, table


def _whole(source: LogSource, out: Path) -> Path:
    (task,) = _tasks(source, out, 1 << 30).writes
    task()
    return out


def _in_parts(source: LogSource, out: Path) -> Path:
    tasks = _tasks(source, out)
    writes = list(tasks.writes)
    random.Random(1).shuffle(writes)
    for chore in (*writes, *tasks.folds):
        chore()
        chore()  # a task may be tried again
    return out


def test_parts_and_their_fold_write_what_one_task_writes(log: LogSource, tmp_path: Path) -> None:
    tasks = _tasks(log, tmp_path / "parts")
    assert {*tasks.bundle.closes, "records"} == TABLES.keys()  # nothing is one task's alone
    assert len(list(tasks.writes)) == len(tasks.bundle.parts) > 4
    _same(_in_parts(log, tmp_path / "parts"), _whole(log, tmp_path / "whole"))
    files = [file.name for file in (tmp_path / "parts" / "transactions").iterdir()]
    assert len(files) > 4


def test_nothing_of_a_block_log_is_one_task_s_alone(tmp_path: Path) -> None:
    settings = LogSettings(compress=False)
    with BlockLog(str(tmp_path / "log"), settings, disposer=None) as log:
        for number in range(1, 400):
            operation = Operation(None, OperationKind.INSERT, "orders", b"key", bytes(300))
            _, ticket = log.persisting(("db",), [operation], f"order-{number}")
            ticket.wait()
            if number % 3:
                log.persisted(number, ("db",))
    source = _source(tmp_path / "log")
    tasks = _tasks(source, tmp_path / "parts")
    assert {*tasks.bundle.closes, "records"} == TABLES.keys()
    assert len(list(tasks.writes)) == len(tasks.bundle.parts) > 4
    whole = _whole(source, tmp_path / "whole")
    parts = _in_parts(source, tmp_path / "parts")
    _same(parts, whole)
    assert len(list((parts / "changes").iterdir())) > 4


def test_a_large_log_of_one_split_has_its_records_in_one_part(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "long.h2.db").write_bytes(file_of(long_log(400), 2048))
    log = _source(folder)
    tasks = _tasks(log, tmp_path / "parts")
    assert len(tasks.bundle.parts) == 1
    assert tasks.bundle.closes == ()
    _same(_in_parts(log, tmp_path / "parts"), _whole(log, tmp_path / "whole"))


def _damage(source: LogSource) -> None:
    path = Path(source.files[len(source.files) // 2])
    data = bytearray(path.read_bytes())
    data[9_000] ^= 1
    path.write_bytes(data)
    for file in source.files:
        os.utime(file, (1e9, 1e9))  # else it is taken for a log that is being written


def test_a_damaged_log_is_read_whole(log: LogSource, tmp_path: Path) -> None:
    _damage(log)
    _same(_in_parts(log, tmp_path / "parts"), _whole(log, tmp_path / "whole"), _RECORDS)
    assert len(list((tmp_path / "parts" / "transactions").iterdir())) == 1
    assert _rows(tmp_path / "parts" / "findings")


def test_failfast_judges_by_what_the_parts_have_read(
    log: LogSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "require_undamaged", lambda *_: pytest.fail("one more pass"))
    tasks = _tasks(log, tmp_path / "parts", mode="failfast")
    for chore in (*tasks.writes, *tasks.folds):
        chore()
    _same(tmp_path / "parts", _whole(log, tmp_path / "whole"))


def test_failfast_refuses_a_damaged_log_in_parts(log: LogSource, tmp_path: Path) -> None:
    _damage(log)
    tasks = _tasks(log, tmp_path / "parts", mode="failfast")
    for write in tasks.writes:
        write()
    (fold,) = tasks.folds
    with pytest.raises(RecordsLostError):
        fold()


def test_a_log_that_cannot_be_read_any_more_is_a_finding(log: LogSource, tmp_path: Path) -> None:
    tasks = _tasks(log, tmp_path / "parts")
    for file in log.files:
        Path(file).unlink()
    for chore in (*tasks.writes, *tasks.folds):
        chore()
    assert "unreadable" in "".join(_rows(tmp_path / "parts" / "findings"))
    assert not _rows(tmp_path / "parts" / "transactions")


def test_what_is_refused_late_is_read_whole(
    log: LogSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _whole(log, tmp_path / "whole")
    given = TallyReading.close_rests

    def refuse(*arguments: Any) -> Iterator[Any]:
        yield next(given(*arguments))
        raise NotClosedInPartsError("later")

    tasks = _tasks(log, tmp_path / "parts")
    for chore in tasks.writes:
        chore()
    (fold,) = tasks.folds
    fold()  # an attempt that succeeds, but is not heard of
    monkeypatch.setattr(TallyReading, "close_rests", refuse)
    fold()
    _same(tmp_path / "parts", whole)
    assert len(list((tmp_path / "parts" / "changes").iterdir())) == 1
    monkeypatch.undo()
    fold()  # what the parts closed is still there
    _same(tmp_path / "parts", whole)


def test_nothing_of_a_part_is_in_a_table_before_the_fold(log: LogSource, tmp_path: Path) -> None:
    for chore in _tasks(log, tmp_path / "parts").writes:
        chore()
    assert not (tmp_path / "parts" / "transactions").exists()
    assert len(list((tmp_path / "parts" / PARTS / "transactions").iterdir())) > 4


def test_a_small_log_is_one_task_and_has_no_fold(log: LogSource, tmp_path: Path) -> None:
    tasks = _tasks(log, tmp_path / "out", 1 << 30)
    assert len(list(tasks.writes)) == 1
    assert not list(tasks.folds)


@pytest.mark.long
def test_a_run_in_parts_has_the_tables_of_a_run_in_one(spark: SparkSession, tmp_path: Path) -> None:
    _write_journal(tmp_path / "logs" / "journal")
    shutil.copytree(tmp_path / "logs" / "journal", tmp_path / "logs" / "damaged")
    _damage(_source(tmp_path / "logs" / "damaged"))
    for name, split_bytes in (("parts", SPLIT_BYTES), ("whole", 1 << 30)):
        options = {"splitBytes": str(split_bytes)}
        Run([str(tmp_path / "logs")], str(tmp_path / name), options=options).advance(spark)
    _same(tmp_path / "parts", tmp_path / "whole", _RECORDS)
    for table in _RECORDS:
        ours, one = (
            [row for row in _rows(tmp_path / name / table) if "journal" in row]
            for name in ("parts", "whole")
        )
        assert ours == one
    for table in ("transactions", "changes"):
        assert len(list((tmp_path / "parts" / table).glob("*.parquet"))) > 4
    assert not (tmp_path / "parts" / "_staging").exists()
    again = Run([str(tmp_path / "logs")], str(tmp_path / "parts"), options={"splitBytes": "40000"})
    assert again.advance(spark) == []


def _write_journal(folder: Path) -> None:
    with Journal(str(folder), settings=SETTINGS) as journal:
        for number in range(150):
            with journal.transaction() as transaction:
                for key in range(3):
                    transaction.add(3 * number + key, bytes(300))
