"""Start and end of records and changes: by version of one log, by time of any number of logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tallystick.arrow.schemas import CHANGES, batch_of
from tallystick.errors import TallystickError
from tallystick.pipeline.change_feed import Bounds, within
from tallystick.pipeline.options import OptionError, SourceOptions, parse
from tallystick.pipeline.planning import RecordsLostError, tasks
from tallystick.pipeline.source.file_ranges import file_ranges, read
from tallystick.pipeline.source.positions import Position
from tallystick.pipeline.source.tailer import Tailer
from tallystick.pipeline.task import execute
from tallystick.systems.tally.live.log import TallyLog
from tests.fixtures import fixture_dir
from tests.pipeline.histories import history_row
from tests.pipeline.source.test_data_loss import WRITERS
from tests.pipeline.source.test_durable import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DERBY = str(fixture_dir("typed") / "d-number-again" / "db" / "log")
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "pipeline.md"


def options_of(path: Path | str, **given: str) -> SourceOptions:
    return parse({"path": str(path), **given})


def in_batch(path: Path | str, **given: str) -> list[dict[str, Any]]:
    """The rows that a batch gives."""
    options = options_of(path, **given)
    batches = (batch for task in tasks(options) for batch in execute(task, options))
    return [row for batch in batches for row in batch.to_pylist()]


def in_stream(path: Path | str, **given: str) -> list[dict[str, Any]]:
    """The rows that a stream gives in one step."""
    options = options_of(path, **given)
    start: Position = {}
    ranges = file_ranges(options, start, Tailer(options).advance(start))
    batches: Iterator[Any] = read(ranges, options)
    return [row for batch in batches for row in batch.select(options.schema.names).to_pylist()]


WAYS = pytest.mark.parametrize("rows_of", [in_batch, in_stream])


def native(folder: Path, count: int = 10) -> Path:
    """A log with some records, one after the other."""
    with TallyLog(str(folder)) as log:
        for number in range(count):
            log.append(b"%d" % number).wait()
    return folder


def moment(microseconds: int) -> str:
    """A time as the options take it."""
    return (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)).isoformat()


@WAYS
@pytest.mark.parametrize("columns", [{}, {"columns": "offset,sequence"}])
def test_records_between_versions_are_given_both_included(
    tmp_path: Path, rows_of: Any, columns: dict[str, str]
) -> None:
    path = native(tmp_path)
    numbers = [row["sequence"] for row in rows_of(path)]
    given = {"startingVersion": str(numbers[3]), "endingVersion": str(numbers[6])}
    found = rows_of(path, **given, **columns)
    assert [row["sequence"] for row in found] == numbers[3:7]
    assert list(found[0]) == (columns["columns"].split(",") if columns else list(rows_of(path)[0]))
    assert [row["sequence"] for row in rows_of(path, endingVersion=str(numbers[1]))] == numbers[:2]


@WAYS
def test_records_of_several_logs_are_given_by_their_times(tmp_path: Path, rows_of: Any) -> None:
    native(tmp_path / "a")
    native(tmp_path / "b")
    times = sorted(row["time"] for row in rows_of(tmp_path))
    first, last = times[4], times[15]
    given = {"startingTimestamp": moment(first), "endingTimestamp": moment(last)}
    found = sorted(row["time"] for row in rows_of(tmp_path, **given))
    assert found == [one for one in times if first <= one <= last]
    assert rows_of(tmp_path, startingTimestamp=moment(times[-1] + 1)) == []


def test_times_that_no_timestamp_holds_lie_before_or_after_a_bound_all_the_same() -> None:
    times = [-(2**63), 0, 1, 2**63 - 1, None]
    rows = [
        history_row(version, "add", "1", clock="wall_ms", time=time)
        for version, time in enumerate(times)
    ]
    since, until = Bounds(first_time=1_000), Bounds(last_time=0)
    for bounds, due in ((since, [1, 2**63 - 1]), (until, [-(2**63), 0])):
        found = within([batch_of(rows, CHANGES)], bounds)
        assert [one for batch in found for one in batch["time"].to_pylist()] == due


@WAYS
def test_changes_between_versions_are_given_by_their_commits(rows_of: Any) -> None:
    rows = rows_of(DERBY, table="changes")
    commits = sorted({row["_commit_version"] for row in rows})
    given = {"startingVersion": str(commits[1]), "endingVersion": str(commits[-2])}
    expected = [row for row in rows if commits[1] <= row["_commit_version"] <= commits[-2]]
    assert rows_of(DERBY, table="changes", **given) == expected
    assert 0 < len(expected) < len(rows)


def without_begin(folder: Path, system: str) -> Path:
    """A log of which the first files are gone, as their owner removes them."""
    if system == "native":
        with TallyLog(str(folder), settings=SMALL) as log:
            for number in range(20):
                log.append(b"%d" % number).wait()
                if number == 9:
                    log.roll()
            assert log.reclaim(12)
        return folder
    write, pattern = WRITERS[system]
    write(str(folder), range(40))
    files = sorted(folder.glob(pattern), key=lambda one: (len(one.name), one.name))
    for path in files[:2]:
        path.unlink()
    return folder


@pytest.mark.sampled(2)
@WAYS
@pytest.mark.parametrize("system", ["native", "derby", "cloudtran"])
@pytest.mark.parametrize("table", ["records", "changes"])
def test_a_version_that_was_given_up_is_an_error_unless_losses_are_to_be_skipped(
    tmp_path: Path, rows_of: Any, system: str, table: str
) -> None:
    path, name = without_begin(tmp_path, system), "_commit_version"
    left = rows_of(path, table=table, failOnDataLoss="false")
    versions = [row["sequence" if table == "records" else name] for row in left]
    first = min(one for one in versions if one is not None)
    assert rows_of(path, table=table, startingVersion=str(first), failOnDataLoss="false") == left
    sure = first + 1  # changes may begin later than what is there does
    for given in ("0", "1"):
        asked = {"table": table, "startingVersion": given}
        with pytest.raises(RecordsLostError, match=rf"version {given}, of startingVersion") as told:
            rows_of(path, **asked)
        assert told.value.file == str(path)
        assert rows_of(path, **asked, failOnDataLoss="false") == left
    # What is there may begin before the first change does.
    for given in ("0", str(first - 1)) if table == "records" else ("0",):
        with pytest.raises(RecordsLostError, match=rf"version {given}, of endingVersion"):
            rows_of(path, table=table, endingVersion=given)
        assert not rows_of(path, table=table, endingVersion=given, failOnDataLoss="false")
    assert rows_of(path, table=table, startingVersion=str(sure)) == [
        row for row, version in zip(left, versions, strict=True)
        if version is not None and version >= sure
    ]  # fmt: skip


@WAYS
@pytest.mark.parametrize("table", ["records", "changes"])
def test_a_log_that_gave_up_nothing_may_be_asked_for_versions_before_its_first(
    rows_of: Any, table: str
) -> None:
    rows = rows_of(DERBY, table=table)
    assert rows_of(DERBY, table=table, startingVersion="0") == rows


@WAYS
@pytest.mark.parametrize("name", ["startingVersion", "endingVersion"])
def test_versions_of_several_logs_are_refused(tmp_path: Path, rows_of: Any, name: str) -> None:
    native(tmp_path / "a")
    native(tmp_path / "b")
    with pytest.raises(OptionError, match="numbers of one log"):
        rows_of(tmp_path, **{name: "1"})


@WAYS
def test_a_log_whose_clock_tells_no_time_of_day_is_refused_by_time(rows_of: Any) -> None:
    with pytest.raises(TallystickError, match="does not tell the time of day") as caught:
        rows_of(DERBY, table="changes", startingTimestamp="2026-01-01")
    assert caught.value.file == DERBY


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"startingVersion": "1", "startingTimestamp": "2026-01-01"}, "exclude each other"),
        ({"endingVersion": "1", "endingTimestamp": "2026-01-01"}, "exclude each other"),
        ({"startingVersion": "1", "startingOffsets": "latest"}, "exclude each other"),
        ({"startingTimestamp": "2026-01-01", "startingOffsets": "latest"}, "exclude each other"),
        ({"startingVersion": "2", "endingVersion": "1"}, "is after"),
        ({"startingTimestamp": "2026-01-02", "endingTimestamp": "2026-01-01"}, "is after"),
        ({"startingVersion": "one"}, "whole number"),
        ({"endingVersion": str(1 << 63)}, "whole number of eight bytes"),
        ({"startingVersion": "latest"}, "startingOffsets=latest"),
        ({"endingTimestamp": "yesterday"}, "a time as in"),
        ({"startingTimestamp": "1711112200000"}, "a time as in"),  # as Kafka has it
        ({"startingOffsets": "newest"}, "earliest, latest"),
        ({"table": "files", "startingVersion": "1"}, "is for records and changes"),
    ],
)
def test_bounds_that_mean_nothing_are_refused_in_one_sentence(
    given: dict[str, str], problem: str
) -> None:
    with pytest.raises(OptionError, match=problem):
        options_of("/l", **given)


def test_a_time_without_zone_is_in_the_zone_of_the_option() -> None:
    given = {"startingTimestamp": "2026-01-01 01:00:00", "timezone": "Europe/Berlin"}
    assert options_of("/l", **given).bounds.first_time == 1_767_225_600_000_000
    assert options_of("/l", startingOffsets="earliest", startingVersion="1").bounds.of_versions


def test_a_stream_from_the_latest_gives_what_is_written_after_it_began(tmp_path: Path) -> None:
    from tallystick.pipeline.source.stream import LogStreamReader

    options = options_of(native(tmp_path / "a"), startingOffsets="latest")
    reader = LogStreamReader(options)
    start = reader.initialOffset()
    assert reader.tailer.advance(start) == start
    with TallyLog(str(tmp_path / "a")) as log:
        log.append(b"new").wait()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    batches = [batch for one in reader.partitions(start, end) for batch in reader.read(one)]
    assert [row["body"] for batch in batches for row in batch.to_pylist()] == [b"new"]


def guide_example() -> str:
    """The example of the guide."""
    (found,) = re.findall(r"^```python\n(since = .*?)^```", GUIDE.read_text(), re.M | re.S)
    return str(found)


def test_through_spark_the_example_of_the_guide_gives_what_it_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    native(tmp_path / "a")
    native(tmp_path / "b")
    scope: dict[str, Any] = {"spark": spark}
    exec(
        guide_example().replace("logs/native", f"{tmp_path}/a").replace("logs/", f"{tmp_path}/"),
        scope,
    )
    assert scope["since"].count() == 0  # these logs are younger than the example
    assert [row["sequence"] for row in scope["few"].orderBy("sequence").collect()] == [2, 3, 4, 5]
    with pytest.raises(Exception, match="startingOffsets=latest is for streams"):
        spark.read.format("tallystick").options(startingOffsets="latest").load(
            str(tmp_path)
        ).count()


@pytest.mark.parametrize("table", ["records", "changes"])
def test_a_checkpoint_of_a_stream_with_an_end_is_not_read_on_behind_it(
    tmp_path: Path, table: str
) -> None:
    """What is behind its end was passed over, and would never be handed on."""
    from tallystick.pipeline.source.stream import LogStreamReader

    column = "sequence" if table == "records" else "_commit_version"
    numbers = [row[column] for row in in_batch(native(tmp_path), table=table)]
    (last,) = {row["time"] for row in in_batch(tmp_path, table=table)[6:7]}
    for ends in (
        [{"endingVersion": str(number)} for number in (numbers[6], numbers[2], numbers[8])],
        [{"endingTimestamp": moment(last + more)} for more in (0, -1, 1_000_000)],
    ):
        first, earlier, later = (
            LogStreamReader(options_of(tmp_path, table=table, **end)) for end in ends
        )
        end: Any = first.latestOffset({}, first.getDefaultReadLimit())
        assert first.latestOffset(end, first.getDefaultReadLimit()) == end
        assert earlier.latestOffset(end, earlier.getDefaultReadLimit()) == end
        for other in (later, LogStreamReader(options_of(tmp_path, table=table))):
            with pytest.raises(OptionError, match=r"with an earlier end.* passed over.*ending"):
                other.latestOffset(end, other.getDefaultReadLimit())
            with pytest.raises(OptionError, match="with an earlier end"):
                other.partitions({}, end)


def test_a_stream_whose_end_is_not_reached_may_get_a_later_one(tmp_path: Path) -> None:
    from tallystick.pipeline.source.stream import LogStreamReader

    numbers = [row["sequence"] for row in in_batch(native(tmp_path))]
    first, later = (
        LogStreamReader(options_of(tmp_path, endingVersion=str(numbers[-1] + more)))
        for more in (0, 5)
    )
    end: Any = first.latestOffset({}, first.getDefaultReadLimit())
    assert later.latestOffset(end, later.getDefaultReadLimit()) == end
