"""The splits of a log and their rests give the transactions and changes of the whole log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tallystick.reading.tables import batches_of
from tallystick.systems.derby.engine import redo_of_parts
from tallystick.systems.derby.format.layout import HEADER_SIZE, make_instant
from tallystick.systems.derby.reader import DerbyReading
from tallystick.systems.derby.runs import chunk
from tallystick.systems.protocol import ClosesBySplit, NotClosedInPartsError, Split
from tests.kit import closed_alike, read_in_runs
from tests.systems.derby.logs import copy, flip, reading, reading_of, redone_pages
from tests.systems.derby.mixed import MixedLog, written

TABLES = ("transactions", "changes")
Rows = dict[str, list[str]]


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have short logs read in runs, too."""
    read_in_runs(monkeypatch)


def rows_of(batches: Any) -> Rows:
    """The rows of each table, sorted."""
    found: Rows = {table: [] for table in TABLES}
    for table, batch in batches:
        found[table] += map(str, batch.to_pylist())
    return {table: sorted(rows) for table, rows in found.items()}


def whole(log: DerbyReading) -> Rows:
    """The rows of the whole log."""
    return rows_of((table, batch) for table in TABLES for batch in batches_of(log, table))


def in_parts(log: DerbyReading, splits: list[Split]) -> Rows | None:
    """The rows of the splits and their rests; None where a split has no rest."""
    assert isinstance(log, ClosesBySplit)
    batches, rests = [], []
    for split in splits:
        closed = log.close_split(split, 10)
        batches += list(closed.batches)
        rests.append(closed.rest())
    known = [rest for rest in rests if rest is not None]
    if len(known) < len(rests):
        return None
    return rows_of([*batches, *log.close_rests(known, 10)])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_splits_of_mixed_logs_close_all_of_one_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, checkpoints: bool
) -> None:
    monkeypatch.setattr(chunk, "ROWS", (17, 64, 1 << 15)[seed % 3])
    files = MixedLog(
        seed,
        1 + seed % 4,
        400,
        checkpoints=checkpoints,
        reboots=False,
        gaps=False,
        branches=not checkpoints,
    ).files
    log = reading_of(written(files, tmp_path / "log"))
    for size in (1, 2000, 1 << 20):
        # Where no boot uses the log, each transaction of it is asked for.
        assert closed_alike(log, size, 10) is (log.recovery.boots is not False)


@pytest.mark.parametrize("seed", [9, 13, 19])
def test_what_a_boot_redoes_is_known_by_parts(tmp_path: Path, seed: int) -> None:
    files = MixedLog(
        seed, 2, 400, checkpoints=True, reboots=False, gaps=False, branches=False
    ).files
    log = reading_of(written(files, tmp_path / "log"))
    rests = []
    for split in log.splits(2000):
        closed = log.close_split(split, 10)
        assert all(batch.num_rows for _, batch in closed.batches)
        rests.append(closed.rest() or b"")
    known = log.knowing(rests)
    assert log.recovery.start > make_instant(1, HEADER_SIZE)
    assert known.recovery == log.recovery
    assert list(redone_pages(known.recovery)) == list(redone_pages(log.recovery))
    assert known.run_count == log.run_count


def test_more_pages_than_fit_are_left_to_the_whole_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = MixedLog(1, 1, 200, checkpoints=False, reboots=False, gaps=False).files
    log = reading_of(written(files, tmp_path / "log"))
    assert closed_alike(log, 2000)
    monkeypatch.setattr(redo_of_parts, "PAGES_MAX", 1)
    assert not closed_alike(log, 2000)


def test_gaps_between_versions_of_a_page_are_left_to_the_whole_log(tmp_path: Path) -> None:
    files = MixedLog(7, 1, 400, checkpoints=False, reboots=False, gaps=True, branches=False).files
    log = reading_of(written(files, tmp_path / "log"))
    assert log.recovery.gaps
    assert not closed_alike(log, 2000)


@pytest.mark.parametrize("case", ["threads", "rollbacks", "xa-indoubt", "large"])
def test_splits_of_original_logs_close_all_or_refuse(case: str) -> None:
    log = reading(case)
    try:
        found = in_parts(log, list(log.splits(20_000)))
    except NotClosedInPartsError:
        return
    assert found is None or found == whole(log)


def test_names_of_tables_that_change_are_not_closed_in_parts() -> None:
    log = reading("ddl")
    assert in_parts(log, list(log.splits(20_000))) is None


def test_several_boots_are_not_closed_in_parts(tmp_path: Path) -> None:
    files = MixedLog(3, 1, 600, checkpoints=False, reboots=True, gaps=False).files
    log = reading_of(written(files, tmp_path / "log"))
    with pytest.raises(NotClosedInPartsError, match="used again"):
        in_parts(log, list(log.splits(2000)))


def test_damage_is_not_closed_in_parts(tmp_path: Path) -> None:
    log = reading_of(copy("threads", tmp_path / "db", {"log1.dat": flip(60_000)}))
    assert in_parts(log, list(log.splits(20_000))) is None


def test_missing_part_is_not_closed(tmp_path: Path) -> None:
    files = MixedLog(1, 3, 400, checkpoints=False, reboots=False, gaps=False).files
    log = reading_of(written(files, tmp_path / "log"))
    splits = list(log.splits(2000))
    assert len(splits) > 2
    assert splits[0].end > HEADER_SIZE
    with pytest.raises(NotClosedInPartsError, match="not plainly whole"):
        in_parts(log, splits[:1] + splits[2:])


def test_log_without_log_files_closes_nothing(tmp_path: Path) -> None:
    files = MixedLog(1, 1, 10, checkpoints=False, reboots=False, gaps=False).files
    control = {"log.ctrl": files["log.ctrl"]}
    log = reading_of(written(control, tmp_path / "log"))
    assert in_parts(log, list(log.splits(2000))) in (None, whole(log))
    assert list(log.close_rests([], 10)) == []
