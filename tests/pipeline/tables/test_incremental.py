"""Bundles: what a task writes, and what a run leaves as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallystick.pipeline import planning
from tallystick.pipeline import task as executing
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import Piece, Task
from tallystick.pipeline.tables import write_task as bundles
from tallystick.pipeline.tables.bundle_tasks import BundleTasks
from tallystick.pipeline.tables.write_task import (
    FileRewrite,
    TableFile,
    TableWrite,
)
from tallystick.reading.profiling import PROFILE, profile_rows
from tallystick.reading.tables import TABLES
from tallystick.roles import page_store_files
from tallystick.roles.coordinator_files import (
    CLOSED_FILE,
    IDENTITIES,
    LOST_FILE,
    NODE_FILE,
    RESOURCES,
)
from tallystick.services.journal import outcomes
from tallystick.services.page_store import recovery
from tallystick.services.transactions.coordinator_dir import TRACES_FILE
from tallystick.services.write_behind.service_dir import IDENTITY_FILE, REFUSED_FILE
from tallystick.storage.shared.members import PREFIX
from tallystick.systems import known
from tallystick.systems.protocol import LogSource
from tallystick.systems.registry import NATIVE, system
from tallystick.systems.tally.format.layout import LOCK_NAME

SCHEMA = pa.schema([("log", pa.string()), ("number", pa.int64())])


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[LogSource]:
    """Small logs, and one that is too large for a task of 1 KiB."""
    monkeypatch.setattr(
        known, "PACKAGES", {"fake": "tests.pipeline.fake", "other": "tests.pipeline.fake"}
    )
    found = []
    for name, lines in (("a", 3), ("b", 5), ("large", 500), ("c", 2)):
        file = tmp_path / name / "1.fake"
        file.parent.mkdir()
        file.write_text("FAKE\n" + "".join(f"committed {n + 1}\n" for n in range(lines)))
        found.append(LogSource("fake", str(file.parent), (str(file),)))
    return found


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(folder.glob("*")) for row in pq.read_table(file).to_pylist()]


def _batch(log: str, *numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"log": log, "number": n} for n in numbers], SCHEMA)


def test_a_log_too_large_for_a_task_is_a_bundle_with_parts(logs: list[LogSource]) -> None:
    small, large, last = planning.bundles(logs, SourceOptions((), split_bytes=1_024))
    assert [piece.source for piece in small.whole.pieces] == logs[:2]
    assert not small.parts
    assert large.whole.pieces == (Piece(logs[2], None, large.whole.pieces[0].size),)
    assert all(piece.split for part in large.parts for piece in part.pieces)
    assert len(large.parts) > 3
    assert [piece.source for piece in last.whole.pieces] == logs[3:]


def test_logs_of_one_name_are_never_parted(logs: list[LogSource]) -> None:
    twin = LogSource("other", logs[0].path, logs[0].files)
    named = [
        {piece.source for piece in bundle.whole.pieces}
        for bundle in planning.bundles([*logs, twin], SourceOptions((), split_bytes=1))
    ]
    assert {logs[0], twin} in named
    assert len(named) == len(logs)


@pytest.mark.parametrize("split_bytes", [100, 1_024, 1 << 20])
def test_bundles_hold_what_the_source_gives(
    tmp_path: Path, logs: list[LogSource], split_bytes: int
) -> None:
    options = SourceOptions((), split_bytes=split_bytes)
    for number, bundle in enumerate(planning.bundles(logs, options)):
        name, root = str(number), str(tmp_path / "out")
        tasks = BundleTasks(bundle, name, root, options, "snappy", profile=True)
        for chore in (*tasks.writes, *tasks.folds):
            chore()
            chore()  # a task may be tried again
    for table in TABLES:
        expected = [
            row
            for log in logs
            for _, batch in executing.tables_of([Piece(log)], options, [table])
            for row in batch.to_pylist()
        ]
        found = _rows(tmp_path / "out" / table)
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
    readings = (system(log.system).read(log, options.reading) for log in logs)
    profiles = [
        {name: row.get(name) for name in PROFILE.names}
        for reading in readings
        for row in profile_rows(reading)
    ]
    found = _rows(tmp_path / "out" / "profile")
    assert sorted(map(repr, found)) == sorted(map(repr, profiles))


def test_a_log_that_cannot_be_read_is_a_finding_in_its_bundle(
    tmp_path: Path, logs: list[LogSource]
) -> None:
    Path(logs[0].files[0]).unlink()
    task = Task(tuple(map(Piece, logs[:2])))
    TableWrite(str(tmp_path / "out"), "one", task, tuple(TABLES), SourceOptions(()), "snappy")()
    (finding,) = _rows(tmp_path / "out" / "findings")
    assert (finding["code"], finding["log"]) == ("unreadable", logs[0].path)
    assert {row["log"] for row in _rows(tmp_path / "out" / "records")} == {logs[1].path}


def test_a_file_appears_when_it_is_whole_and_not_without_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "GROUP_BYTES", 20)
    file = TableFile(str(tmp_path / "table"), "one", SCHEMA, "snappy")
    file.add(_batch("a"))
    assert not (tmp_path / "table").exists()
    file.add(_batch("a", 1, 2))
    file.add(_batch("b", 3, 4))
    assert [path.name[:5] for path in (tmp_path / "table").iterdir()] == [".one."]
    file.close()
    (whole,) = (tmp_path / "table").iterdir()
    assert whole.name == "one.parquet"
    assert pq.ParquetFile(whole).num_row_groups == 2
    TableFile(str(tmp_path / "table"), "none", SCHEMA, "snappy").close()
    assert list((tmp_path / "table").iterdir()) == [whole]


def test_carrying_leaves_out_logs_and_nothing_else(tmp_path: Path) -> None:
    file = TableFile(str(tmp_path / "old"), "one", SCHEMA, "zstd")
    for log in ("a", "b", "a", "c"):
        file.add(_batch(log, 1, 2))
    file.close()
    FileRewrite(
        str(tmp_path / "old" / "one.parquet"), str(tmp_path / "new"), frozenset("ac"), "none"
    )()
    assert _rows(tmp_path / "new") == [{"log": "b", "number": 1}, {"log": "b", "number": 2}]
    assert pq.ParquetFile(tmp_path / "new" / "one.parquet").schema_arrow == SCHEMA


def test_files_beside_native_logs_have_the_names_that_their_stores_give_them() -> None:
    names = page_store_files
    pages = {names.PAGES, names.BACKUP_MARK, recovery.SIDE, recovery.FRESH}
    closed = {CLOSED_FILE, f"{CLOSED_FILE}.old", TRACES_FILE, f"{TRACES_FILE}.old"}
    manager = {NODE_FILE, IDENTITIES.name, LOST_FILE, RESOURCES.name, outcomes.FILE, *closed}
    others = {IDENTITY_FILE, REFUSED_FILE, LOCK_NAME, PREFIX.removesuffix(".")}
    assert pages | manager | others == system(NATIVE).companions
