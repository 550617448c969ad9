"""Old images from the history of a log and from a base snapshot, in batch and in steps."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet
import pytest

from tallystick.arrow.schemas import CHANGES, batch_of
from tallystick.arrow.texts import whole_text
from tallystick.errors import TallystickError
from tallystick.pipeline.change_feed import FEED, feed
from tallystick.pipeline.options import OptionError, SourceOptions, parse
from tallystick.pipeline.planning import tasks
from tallystick.pipeline.row_images import WITH_IMAGES, images_of
from tallystick.pipeline.source.file_ranges import file_ranges, packed, read
from tallystick.pipeline.source.positions import Position
from tallystick.pipeline.source.tailer import Tailer
from tallystick.pipeline.task import execute
from tallystick.systems.jboss.live.log import CircularJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.tally.format.layout import SEGMENT_SIZE_MIN
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles import TallyRecordJournal
from tallystick.systems.tally.live.settings import Settings
from tests.pipeline.histories import Row, history_row, random_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = Settings(
    segment_size=2 * SEGMENT_SIZE_MIN, preallocate=False, idle_mark_s=None, recycle=False, spares=0
)


def _expected(rows: list[Row]) -> list[tuple[int, str, bytes | None, str | None]]:
    """The feed as a reader makes it that keeps every row in memory."""
    images: dict[tuple[str, str], tuple[bytes, str]] = {}
    found: list[tuple[int, str, bytes | None, str | None]] = []
    for row in rows:
        place = row["collection"], row["key"]
        old, version = images.get(place), row["commit_sequence"]
        if row["kind"] == "truncate":
            images = {one: image for one, image in images.items() if one[0] != place[0]}
            found.append((version, "truncate", None, None))
        elif row["kind"] == "delete":
            assert old is not None
            del images[place]
            found.append((version, "delete", *old))
        else:
            if found and found[-1][:2] == (version, "delete"):
                before, values = found.pop()[2:]
            else:
                before, values = old or (None, None)
            if before is not None:
                found.append((version, "update_preimage", before, values))
            kind = "insert" if before is None else "update_postimage"
            found.append((version, kind, before, row["values"]))
            images[place] = row["after"], row["values"]
    return found


def _found(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, str, bytes | None, str | None]]:
    names = ("_commit_version", "_change_type", "before", "values")
    return [tuple(row[name] for name in names) for one in batches for row in one.to_pylist()]


def _batches(rows: list[Row], size: int = 7) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), size):
        yield batch_of(rows[at : at + size], CHANGES)


@pytest.mark.parametrize("seed", range(5))
def test_every_update_has_the_image_of_the_change_before_it(seed: int) -> None:
    rows = random_history(seed, 300)
    with images_of(None, None, "/l") as images:
        filled = list(images.filled(_batches(rows)))
    assert all(one.schema == WITH_IMAGES for one in filled)
    assert _found(feed(filled)) == _expected(rows)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(5))
def test_steps_that_are_tried_again_give_the_images_of_one_pass(tmp_path: Path, seed: int) -> None:
    rows, choice = random_history(seed, 300), random.Random(seed)
    found: list[tuple[int, str, bytes | None, str | None]] = []

    def between(after: int | None, until: int) -> Iterator[pa.RecordBatch]:
        return _batches([row for row in rows if (after or 0) < row["commit_sequence"] <= until])

    after = 0
    while after < 300:
        until = min(after + choice.randint(1, 40), 300)
        for _ in range(choice.randint(1, 3)):
            with images_of(str(tmp_path), None, "/l") as images:
                images.advance(between, after)
                step = _found(feed(images.filled(between(after, until))))
        found += step
        after = until
    assert found == _expected(rows)
    with images_of(str(tmp_path), None, "/l") as images:  # a query that begins anew
        images.advance(between, 10)
        assert images.version == 10
        rest = _found(feed(images.filled(between(10, 300))))
    assert rest == [row for row in _expected(rows) if row[0] > 10]


def test_images_of_another_query_are_not_used(tmp_path: Path) -> None:
    """A checkpoint is removed, and the folder stays: the query begins anew with rows before."""
    rows = [history_row(2, "update", "1", values='{"V": 2}'), history_row(3, "delete", "1")]
    before = [("1", {"V": 1, "W": "kept"})]

    def between(after: int | None, until: int) -> Iterator[pa.RecordBatch]:
        return _batches([row for row in rows if (after or 0) < row["commit_sequence"] <= until])

    def followed(collection: str = "T") -> list[tuple[int, str, bytes | None, str | None]]:
        found = []
        for step, place in enumerate((None, 2)):
            with images_of(str(tmp_path), None, "/l", collection, iter(before)) as images:
                images.advance(between, place)
                found += _found(feed(images.filled(between(place, step + 2))))
        return found

    old, new = '{"V": 1, "W": "kept"}', '{"V": 2, "W": "kept"}'
    due = [(2, "update_preimage", None, old), (2, "update_postimage", None, new)]
    due.append((3, "delete", None, new))
    assert followed() == followed() == due
    assert followed("U")[0] != due[0]  # its rows are others
    assert followed() == due


@pytest.mark.parametrize(
    ("columns", "due"),
    [
        (("ID", "V"), {"V": "a"}),
        (("ID", "V", "W"), {"V": "a"}),
        (("ID", "VV"), {"VV": "a"}),
        (("ID", "VV", "W"), {"VV": "a"}),
    ],
    ids=["as they were", "one added", "renamed", "renamed and one added"],
)
def test_images_of_columns_that_were_renamed_are_made_again_by_their_new_names(
    tmp_path: Path, columns: tuple[str, ...], due: dict[str, str]
) -> None:
    """A log tells all of its changes by the names that columns have at its end."""
    read = []

    def between(names: tuple[str, ...], after: int | None, until: int) -> Iterator[pa.RecordBatch]:
        read.append(after)
        values = {"ID": 1, names[1]: "a"}
        rows = [
            history_row(1, "add", "1", values=json.dumps(values)),
            history_row(2, "update", "1", values='{"ID": 1}'),
            history_row(3, "delete", "1"),
        ]
        return _batches([row for row in rows if (after or 0) < row["commit_sequence"] <= until])

    before = ("ID", "V")
    for names, place in ((before, None), (before, 1), (columns, 2)):
        changes = partial(between, names)
        with images_of(str(tmp_path), None, "/l", "T", (), names) as images:
            images.advance(changes, place)
            (found,) = images.filled(changes(place, (place or 0) + 1))
    assert json.loads(found["before_values"][0].as_py()) == {"ID": 1, **due}
    assert read.count(None) == (2 if "V" in columns else 3)  # the first steps


def test_a_folder_of_images_that_another_query_uses_meanwhile_is_an_error(tmp_path: Path) -> None:
    def between(_after: int | None, until: int) -> Iterator[pa.RecordBatch]:
        return _batches([history_row(until, "add", "1", after=b"1")])

    with images_of(str(tmp_path), None, "/l") as images:
        images.advance(between, 3)
        with images_of(str(tmp_path), None, "/l") as others:
            others.advance(between, None)
        with pytest.raises(TallystickError, match="another query keeps"):
            list(images.filled(between(3, 4)))


def test_images_that_cannot_be_brought_up_to_date_are_not_used(tmp_path: Path) -> None:
    def gone(_after: int | None, _until: int) -> Iterator[pa.RecordBatch]:
        raise TallystickError("records were given up before they were read")

    base = {"collection": "T", "key": "1", "after": b"older than what is gone"}
    pyarrow.parquet.write_table(pa.Table.from_pylist([base]), tmp_path / "base.parquet")
    with images_of(str(tmp_path), str(tmp_path / "base.parquet"), "/l") as images:
        images.advance(gone, 5)  # nothing was seen before: the log begins there
        assert images.version == 5
        (row,) = _found(feed(images.filled(_batches([history_row(6, "delete", "1")]))))
        assert row == (6, "delete", None, None)
        with pytest.raises(TallystickError, match="given up"):
            images.advance(gone, 9)
        assert images.version == 5


def test_a_base_gives_the_images_of_changes_after_it_only(tmp_path: Path) -> None:
    base = [
        {"log": "/l", "collection": "T", "key": "1", "after": b"base", "commit_sequence": 2},
        {"log": "/l", "collection": "T", "key": "2", "after": b"old", "commit_sequence": None},
        {"log": "/other", "collection": "T", "key": "3", "after": b"no", "commit_sequence": None},
    ]
    pyarrow.parquet.write_table(pa.Table.from_pylist(base), tmp_path / "base.parquet")
    rows = [
        history_row(1, "update", "1", after=b"first"),
        history_row(3, "delete", "2"),
        history_row(4, "update", "3", after=b"three"),
        history_row(5, "update", "1", after=b"five"),
    ]
    with images_of(None, str(tmp_path / "base.parquet"), "/l") as images:
        found = _found(feed(images.filled(_batches(rows))))
    assert [row[:3] for row in found] == [
        (1, "update_postimage", None),
        (3, "delete", b"old"),
        (4, "update_postimage", None),
        (5, "update_preimage", b"first"),
        (5, "update_postimage", b"first"),
    ]
    with images_of(None, str(tmp_path / "base.parquet"), "/l") as images:
        found = _found(feed(images.filled(_batches(rows[3:]))))
    assert found[0][:3] == (5, "update_preimage", b"base")


def test_a_log_whose_name_is_in_another_encoding_has_its_images(tmp_path: Path) -> None:
    """The base has the name as every table has it."""
    logs = dict(zip(("/\udce4", "/\udce5"), (b"one", b"other"), strict=True))
    base = [
        {"log": whole_text(log), "collection": "T", "key": "1", "after": after}
        for log, after in logs.items()
    ]
    pyarrow.parquet.write_table(pa.Table.from_pylist(base), tmp_path / "base.parquet")
    for log, after in logs.items():
        with images_of(str(tmp_path), str(tmp_path / "base.parquet"), log) as images:
            (row,) = _found(feed(images.filled(_batches([history_row(1, "delete", "1")]))))
        assert row == (1, "delete", after, None)
    assert len([*tmp_path.glob("*.images")]) == 2


def test_a_base_without_keys_is_refused(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"key": ["1"]}), tmp_path / "base.parquet")
    with (
        pytest.raises(TallystickError, match="lacks columns"),
        images_of(None, str(tmp_path / "base.parquet"), "/l"),
    ):
        pass


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["_delta_log/0.json", "part-0.parquet"], "is not in Parquet.*a table of Delta"),
        (["part-0.json"], "is not in Parquet.*part-0.json"),
        (["part-0.parquet"], "cannot read the base snapshot"),
    ],
    ids=["Delta", "json", "damaged"],
)
def test_a_base_that_is_no_parquet_is_refused(tmp_path: Path, files: list[str], said: str) -> None:
    """The files of a Delta table hold rows that are no more in the table, too."""
    for name in files:
        (tmp_path / "base" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "base" / name).write_text("{}")
    with (
        pytest.raises(TallystickError, match=said),
        images_of(None, str(tmp_path / "base"), "/l"),
    ):
        pass


def _write(log: TallyLog, seed: int, count: int = 120) -> None:
    log.ask_before_reclaiming(lambda _path: False)
    journal, choice = TallyRecordJournal(log), random.Random(seed)
    for number in range(count):
        key, body = choice.randrange(9), b"%d %d " % (seed, number) + bytes(choice.randrange(900))
        journal.update(key, body).wait()
        if choice.random() < 0.1:
            journal.delete(key).wait()
        if choice.random() < 0.05:
            log.roll()


def _batch_rows(path: Path) -> list[Row]:
    options = SourceOptions((str(path),), table="changes", history=True)
    read = (batch for task in tasks(options) for batch in execute(task, options))
    return [row for batch in read for row in batch.to_pylist()]


def test_a_stream_gives_the_images_that_a_batch_gives(tmp_path: Path) -> None:
    options = SourceOptions(
        (str(tmp_path / "log"),), "changes", 4096, history=True, images_folder=str(tmp_path / "i")
    )
    log, position = TallyLog(str(tmp_path / "log"), settings=SMALL), Position()
    rows: list[Row] = []
    for seed in range(4):
        _write(log, seed)
        log.mark() if seed < 3 else log.close()
        end = Tailer(options).advance(position)
        found = file_ranges(options, position, end)
        bundles = list(packed(found, options.split_bytes, whole_logs=True))
        assert len(bundles) == 1 == len(found)
        rows += [row for batch in read(bundles[0], options) for row in batch.to_pylist()]
        position = end
    assert rows == _batch_rows(tmp_path / "log")
    images = [row for row in rows if row["_change_type"] == "update_preimage"]
    assert len(images) > 200
    assert all(row["before"] and row["after"] is None for row in images)


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "images removed"])
@pytest.mark.parametrize("loss", ["gone", "damaged"])
def test_a_stream_that_goes_on_after_a_loss_gives_no_images_from_before_it(
    tmp_path: Path, loss: str, kept: bool
) -> None:
    log, folder = tmp_path / "log", tmp_path / "i"
    options = SourceOptions(
        (str(log),), "changes", history=True, images_folder=str(folder), fail_on_data_loss=False
    )
    truth, rows, position = [b"1 old", b"2 old"], list[Row](), Position()

    def write(numbers: range) -> None:
        for number in numbers:
            one = 1 + (number % 19 == 0)
            truth.append(b"%d %02d" % (one, number))
            journal.append_update_record(one, 1, truth[-1] + bytes(700)).wait()

    def step() -> None:
        nonlocal position
        end = Tailer(options).advance(position)
        for some in packed(file_ranges(options, position, end), 1 << 20, whole_logs=True):
            rows.extend(row for batch in read(some, options) for row in batch.to_pylist())
        position = end

    log.mkdir()
    journal = CircularJournal(str(log), JournalSettings(file_size=4096))
    for one in (1, 2):
        journal.append_add_record(one, 1, truth[one - 1] + bytes(700)).wait()
    step()
    write(range(2, 19))
    files = sorted(log.glob("*.amq"), key=lambda file: int(file.stem.rpartition("-")[2]))
    if loss == "gone":
        files[1].unlink()
    else:
        data = bytearray(files[1].read_bytes())
        at = data.index(b"1 06")
        data[at - 30 : at + 700] = b"\xa5" * 730
        files[1].write_bytes(data)
    for numbers in (range(19, 21), range(21, 24), range(38, 40)):
        step()
        step()
        if not kept:
            shutil.rmtree(folder)
        write(numbers)
    step()
    journal.close()
    assert sum(entry["losses"] for entry in position.values()) == 1
    told = {
        bytes(row["after"])[:4]: bytes(row["before"])[:4]
        for row in rows
        if row["_change_type"] == "update_postimage" and row["before"] is not None
    }
    before = {
        one[:4]: [old[:4] for old in truth[:at] if old[:1] == one[:1]][-1:]
        for at, one in enumerate(truth)
    }
    assert {one: [old] for one, old in told.items()}.items() <= before.items()
    assert {b"1 39", b"1 23", b"1 21"} <= told.keys()
    assert b"2 19" not in told


def test_a_damaged_log_gives_no_images_of_what_may_have_changed_since(tmp_path: Path) -> None:
    with TallyLog(str(tmp_path / "log"), settings=SMALL) as log:
        _write(log, 1)
    file = sorted((tmp_path / "log").glob("*.tally"))[1]
    data = bytearray(file.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 600] = b"\xff" * 600
    file.write_bytes(data)
    rows = _batch_rows(tmp_path / "log")
    assert rows
    assert not [row for row in rows if row["before"] is not None]


def test_a_base_or_secret_that_is_not_there_fails_a_batch_in_every_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is wrong with the log: without its changes the table looked empty."""
    with TallyLog(str(tmp_path / "log"), settings=SMALL) as log:
        _write(log, 1, 3)
    given = {"path": str(tmp_path / "log"), "table": "changes"}
    wanted = parse(given | {"baseImages": str(tmp_path / "nothing")})
    with pytest.raises(TallystickError, match="cannot read the base snapshot"):
        [*execute(tasks(wanted)[0], wanted)]
    monkeypatch.setenv("KEY", "00" * 32)
    wanted = parse(given | {"encryptionKey": "env:KEY"})
    work = tasks(wanted)
    monkeypatch.delenv("KEY")  # as on an executor
    with pytest.raises(OptionError, match="no env:KEY on this machine"):
        [*execute(work[0], wanted)]


@pytest.mark.parametrize(
    "options",
    [
        {"beforeImages": "history", "table": "records"},
        {"beforeImages": "log", "baseImages": "/x", "table": "changes"},
        {"beforeImages": "yes", "table": "changes"},
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        parse({"path": "/l"} | options)


@pytest.mark.long
@pytest.mark.usefixtures("streams")
def test_through_spark_a_stream_needs_a_folder_for_images_and_gives_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    with TallyLog(str(tmp_path / "log"), settings=SMALL) as log:
        _write(log, 3)
    source = {"table": "changes", "beforeImages": "history", "path": str(tmp_path / "log")}
    stream = spark.readStream.format("tallystick").options(**source)
    target = {"checkpointLocation": str(tmp_path / "c"), "path": str(tmp_path / "rows")}

    def follow(**more: str) -> None:
        rows = stream.options(**more).load()
        query = rows.writeStream.format("parquet").trigger(availableNow=True).options(**target)
        query.start().awaitTermination()

    with pytest.raises(Exception, match="imagesFolder"):
        follow()
    follow(imagesFolder=str(tmp_path / "images"), maxRowsPerTrigger="40")
    batch = spark.read.format("tallystick").options(**source).load()
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert found.columns == FEED.names
    assert batch.where("_change_type = 'update_preimage'").count() > 50
    assert found.exceptAll(batch).isEmpty()
    assert batch.exceptAll(found).isEmpty()
