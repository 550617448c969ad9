"""A batch read of logs that lost records, or lose files while the read is under way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tallystick import Journal
from tallystick.errors import LogUnreadableError, TallystickError
from tallystick.pipeline import planning
from tallystick.pipeline.options import MODES, SourceOptions
from tallystick.pipeline.planning import RecordsLostError, Task, tasks
from tallystick.pipeline.source.batch import TableReader
from tallystick.pipeline.task import execute, tables_of
from tallystick.reading.tables import TABLES
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.live.log import TallyLog
from tests.kit import opened_logs
from tests.pipeline.source.test_data_loss import WRITERS
from tests.pipeline.source.test_durable import SMALL
from tests.systems.live_logs import LIVE

FEED = ("records", "transactions", "changes")


def _files(path: Path, system: str) -> list[Path]:
    found = path.glob(WRITERS[system][1])
    return sorted(found, key=lambda one: (len(one.name), one.name))


def _rows(planned: list[Task], options: SourceOptions) -> int:
    return sum(batch.num_rows for task in planned for batch in execute(task, options))


def _read(options: SourceOptions) -> Iterator[int]:
    reader = TableReader(options)
    for partition in reader.partitions():
        yield from (batch.num_rows for batch in reader.read(partition))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("system", WRITERS)
def test_a_file_that_goes_between_planning_and_reading_fails_the_read(
    system: str, whole: bool, mode: str, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    WRITERS[system][0](str(path), range(20))
    options = SourceOptions((str(path),), split_bytes=1 << 30 if whole else 2000, mode=mode)
    planned = tasks(options)
    assert _rows(planned, options)
    assert (len(planned) == 1) == whole
    files = _files(path, system)
    files[len(files) // 2 - 1].unlink()
    with pytest.raises(LogUnreadableError):
        _rows(planned, options)


@pytest.mark.parametrize("table", [*FEED, "files"])
def test_a_log_that_goes_between_planning_and_reading_is_no_empty_table(
    tmp_path: Path, table: str
) -> None:
    path = tmp_path / "logs" / "one"
    WRITERS["native"][0](str(path), range(20))
    options = SourceOptions((str(path.parent),), table=table)
    planned = tasks(options)
    path.rename(tmp_path / "away")
    with pytest.raises(LogUnreadableError, match="gone since this read was planned"):
        _rows(planned, options)


def test_files_that_a_log_itself_gives_up_after_planning_fail_nothing(tmp_path: Path) -> None:
    WRITERS["native"][0](str(tmp_path), range(20))
    options = SourceOptions((str(tmp_path),))
    planned = tasks(options)
    rows = _rows(planned, options)
    with TallyLog(str(tmp_path), settings=SMALL) as log:
        assert log.reclaim(12)
    assert 0 < _rows(planned, options) < rows


@pytest.mark.parametrize("table", FEED)
@pytest.mark.parametrize("system", WRITERS)
def test_failfast_fails_over_a_hole(system: str, table: str, tmp_path: Path) -> None:
    WRITERS[system][0](str(tmp_path), range(20))
    options = [SourceOptions((str(tmp_path),), table, mode=mode) for mode in MODES]
    before = [list(_read(one)) for one in options]
    assert before[0] == before[1]
    files = _files(tmp_path, system)
    files[len(files) // 2 - 1].unlink()
    list(_read(options[0]))
    with pytest.raises(RecordsLostError, match="missing"):
        list(_read(options[1]))


def test_failfast_opens_each_log_once_for_all_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It found all logs again for each table of each: a cost by the square of their number."""
    for name in ("one", "two"):
        WRITERS["native"][0](str(tmp_path / name), range(20))
    options = SourceOptions((str(tmp_path),), mode="failfast")
    pieces = [piece for task in tasks(options) for piece in task.pieces]
    opened = opened_logs(monkeypatch)
    monkeypatch.setattr(planning, "find", None)
    assert list(tables_of(pieces, options, list(TABLES)))
    assert opened == [piece.source.path for piece in pieces]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("columns", [(), ("body",)])
@pytest.mark.parametrize("table", FEED)
def test_failfast_fails_over_damage(tmp_path: Path, table: str, columns: tuple[str, ...]) -> None:
    for name in (b"a", b"b", b"c"):
        with Journal(str(tmp_path)) as journal:
            journal.append_many([b"%s%03d" % (name, number) for number in range(50)])
    file = max(tmp_path.iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[data.index(b"b020")] ^= 255
    file.write_bytes(data)
    wanted = columns if table == "records" else ()
    options = [SourceOptions((str(tmp_path),), table, mode=m, columns=wanted) for m in MODES]
    list(_read(options[0]))
    with pytest.raises(RecordsLostError, match=file.name):
        list(_read(options[1]))
    assert list(_read(SourceOptions((str(tmp_path),), "findings", mode="failfast")))


@pytest.mark.parametrize("split_bytes", [1 << 30, 4000], ids=["whole", "parts"])
@pytest.mark.parametrize("cut", ["cut", "removed"])
@pytest.mark.parametrize("table", FEED)
def test_failfast_fails_over_what_left_no_row(
    tmp_path: Path, table: str, cut: str, split_bytes: int
) -> None:
    for number in range(12):
        with TallyLog(str(tmp_path), settings=SMALL) as log:
            log.append(b"%d" % number * 400).wait()
            log.roll() if number == 5 else None
    file = max(tmp_path.glob("*[0-9].tally"))
    file.unlink() if cut == "removed" else os.truncate(file, file.stat().st_size // 2)
    options = SourceOptions((str(tmp_path),), table, mode="failfast", split_bytes=split_bytes)
    list(_read(replace(options, mode="permissive")))
    with pytest.raises(RecordsLostError):
        list(_read(options))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("system", WRITERS)
def test_parts_of_a_log_have_no_rows_behind_a_hole_that_the_whole_has_not(
    system: str, tmp_path: Path
) -> None:
    WRITERS[system][0](str(tmp_path), range(60))
    files = _files(tmp_path, system)
    files[len(files) // 2].unlink()
    whole, parts = (SourceOptions((str(tmp_path),), split_bytes=size) for size in (1 << 30, 3000))
    assert len(tasks(parts)) > len(tasks(whole)) == 1
    assert _rows(tasks(parts), parts) == _rows(tasks(whole), whole) > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("system", LIVE)
def test_a_log_whose_files_cannot_be_read_has_no_rows_beside_its_findings_or_is_an_error(
    system: str, mode: str, tmp_path: Path
) -> None:
    log = LIVE[system](LOCAL, str(tmp_path / "log"))
    log.put(1)
    log.close()
    options = SourceOptions((str(tmp_path),), mode=mode)
    planned = {table: tasks(replace(options, table=table)) for table in TABLES}
    for path in planned["records"][0].pieces[0].source.files:
        Path(path).unlink()
        Path(path).mkdir()  # is opened and cannot be read, by whom ever
    for table in FEED:
        wanted = replace(options, table=table)
        if mode == "failfast":
            with pytest.raises(TallystickError):
                _rows(planned[table], wanted)
        else:
            assert not _rows(planned[table], wanted)
            assert "unreadable" in _codes(planned["findings"], replace(options, table="findings"))


def _codes(planned: list[Task], options: SourceOptions) -> list[str]:
    batches = (batch for task in planned for batch in execute(task, options))
    return [code for batch in batches for code in batch["code"].to_pylist()]
