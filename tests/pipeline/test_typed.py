"""The changes of one collection with its own columns, and the table of all collections."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tallystick.arrow.schemas import CHANGES, batch_of
from tallystick.pipeline.change_feed import feed
from tallystick.pipeline.options import OptionError, SourceOptions, parse
from tallystick.pipeline.planning import tasks
from tallystick.pipeline.row_images import WITH_IMAGES
from tallystick.pipeline.source import batch as batch_source
from tallystick.pipeline.source.batch import TallystickDataSource, with_collection
from tallystick.pipeline.source.file_ranges import file_ranges, packed, read
from tallystick.pipeline.source.positions import Position
from tallystick.pipeline.source.tailer import Tailer
from tallystick.pipeline.task import execute
from tallystick.pipeline.typed import OF_FEED, catalogue_of, collection_rows, typed
from tallystick.systems.protocol import Collection, Column
from tests.fixtures import fixture_dir
from tests.pipeline.histories import history_row
from tests.pipeline.test_examples import guide_examples
from tests.systems.derby.logs import reading_of, unpacked
from tests.systems.jboss.applications.test_tables import write_bindings, write_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    ("ID", "int"),
    ("SUM", "decimal(10,2)"),
    ("AT", "timestamp_ntz"),
    ("DAY", "date"),
    ("OK", "boolean"),
    ("RATE", "double"),
    ("DATA", "binary"),
    ("NAME", "string"),
)


def _typed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = typed(feed([batch_of(rows, CHANGES)]), "T", COLUMNS)
    return [row for batch in found for row in batch.to_pylist()]


def test_values_get_the_types_of_their_columns() -> None:
    values = {
        "ID": "-7",
        "SUM": "12.50",
        "AT": "2020-02-29 23:59:59.123456",
        "DAY": "2020-02-29",
        "OK": "TRUE",
        "RATE": "1.5E10",
        "DATA": "00ff",
        "NAME": "naïve",
    }
    rows = [
        history_row(1, "add", "1", after=b"x", values=json.dumps(values)),
        history_row(2, "add", "2", after=b"y", collection="U", values='{"ID": "1"}'),
        history_row(3, "add", "3", after=b"z", values=json.dumps({"ID": "3", "SUM": None})),
        history_row(4, "delete", "3"),
    ]
    first, second, third = _typed(rows)
    assert {name: first[name] for name, _ in COLUMNS} == {
        "ID": -7,
        "SUM": Decimal("12.50"),
        "AT": datetime.datetime(2020, 2, 29, 23, 59, 59, 123456),
        "DAY": datetime.date(2020, 2, 29),
        "OK": True,
        "RATE": 1.5e10,
        "DATA": b"\0\xff",
        "NAME": "naïve",
    }
    assert [one["_change_type"] for one in (first, second, third)] == ["insert", "insert", "delete"]
    assert (second["ID"], second["SUM"], second["_key"]) == (3, None, "3")
    assert third["ID"] is None
    assert list(first) == [*(name for name, _ in COLUMNS), *OF_FEED]


@pytest.mark.parametrize(
    ("name", "value", "rescued"),
    [
        ("ID", "2147483648", "2147483648"),
        ("SUM", "x", "x"),
        ("SUM", "1.005", "1.005"),
        ("DATA", "0", "0"),
        ("DAY", "10000-01-01", "10000-01-01"),
        ("DAY", "0000-12-31", "0000-12-31"),
        ("DAY", "-0001-01-01", "-0001-01-01"),
        ("AT", "10000-01-01 00:00:00.1234567", "10000-01-01 00:00:00.1234567"),
        ("NAME", "\ud83d", "\ud83d"),
        ("NAME", {"lost": "5 bytes"}, "5 bytes"),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_rescued_alone(
    name: str, value: object, rescued: str
) -> None:
    before, found, after = _typed(
        [
            history_row(at, "add", str(at), after=b"", values=json.dumps(values))
            for at, values in enumerate([{"RATE": "1.5"}, {name: value, "RATE": "2.5"}, {}])
        ]
    )
    assert json.loads(found["_rescued"]) == {name: rescued}
    assert [one["RATE"] for one in (before, found, after)] == [1.5, 2.5, None]
    assert (found[name], before["_rescued"], after["_rescued"]) == (None, None, None)


def test_a_value_of_a_column_that_is_not_among_those_of_the_feed_is_rescued() -> None:
    """So a stream loses nothing of a column that is added while it runs."""
    values = json.dumps({"ID": "1", "LATER": "x", "SUM": "y"})
    (found,) = _typed([history_row(1, "add", "1", after=b"", values=values)])
    assert (found["ID"], json.loads(found["_rescued"])) == (1, {"LATER": "x", "SUM": "y"})
    batches = feed([batch_of([history_row(1, "add", "1", values=values)], CHANGES)])
    (batch,) = typed(batches, "T", [("ID", "int")], left_out={"SUM"})
    assert batch["_rescued"].to_pylist() == ['{"LATER": "x"}']


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ({"ID": "1", "NAME": "a"}, {"ID": "1", "NAME": "b"}, False),
        ({"ID": "1", "NAME": "a"}, {"ID": "2", "NAME": "a"}, True),
        ({"NAME": "a"}, {"ID": "2", "NAME": "a"}, None),
    ],
)
def test_updates_of_the_primary_key_are_marked_in_both_rows(
    old: dict[str, str], new: dict[str, str], changed: bool | None
) -> None:
    updated = history_row(2, "update", "1", values=json.dumps(new))
    rows = [
        history_row(1, "add", "1", values=json.dumps(old)),
        updated | {"before_values": json.dumps(old)},
    ]
    batches = list(feed([batch_of(rows, WITH_IMAGES)]))
    for key, wanted in ((("ID",), changed), ((), None)):
        found = [row for one in typed(batches, "T", COLUMNS, key) for row in one.to_pylist()]
        assert [row["_key_changed"] for row in found] == [None, wanted, wanted]


Step = tuple[str, str, str | None, str | None]
"""Kind of a change, the row, and its primary key before and after."""

MOVES: dict[str, list[list[Step]]] = {
    "each row gets the key of the next": [
        [("update", "a", "1", "2"), ("update", "b", "2", "3"), ("update", "c", "3", "4")]
    ],
    "each row gets the key of the one before": [
        [("update", "b", "2", "1x"), ("update", "c", "3", "2"), ("update", "a", "1", "3")]
    ],
    "two rows change their keys": [[("update", "a", "1", "2"), ("update", "b", "2", "1")]],
    "a row that was moved changes its key with another": [
        [("update", "a", "1", "9"), ("update", "b", "2", "9"), ("update", "a", "9", "2")]
    ],
    "the key of a row that was moved and deleted is given again": [
        [("delete", "b", "2", None), ("update", "a", "1", "2"), ("delete", "a", "2", None),
         ("add", "d", None, "2"), ("update", "d", "2", "5")]
    ],
    "a key that was given away and left is deleted": [
        [("update", "a", "1", "9"), ("update", "a", "9", "8"), ("update", "b", "2", "9"),
         ("update", "b", "9", "7")]
    ],
    "another commit gives the key up": [
        [("update", "a", "1", "2"), ("update", "b", "2", "4")],
        [("update", "a", "2", "6")],
    ],
}  # fmt: skip


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("steps", MOVES.values(), ids=MOVES)
def test_a_reader_by_primary_key_keeps_every_row_whose_key_another_one_gave_up(
    steps: list[list[Step]], size: int
) -> None:
    """Engines check keys when a statement ends, so a row may get a key before it is given up."""
    first: list[Step] = [("add", "abc"[at], None, f"{at + 1}") for at in range(3)]
    commits = [first, *steps]
    there: dict[str, str] = {}
    rows = []
    for version, commit in enumerate(commits):
        for kind, row, old, new in commit:
            images = [None if one is None else json.dumps({"ID": one}) for one in (old, new)]
            given = {"before_values": images[0], "values": images[1]}
            rows.append(history_row(version, kind, row) | given)
            there = {key: one for key, one in there.items() if one != row}
            there |= {} if new is None else {new: row}
    batches = [batch_of(rows[at : at + size], WITH_IMAGES) for at in range(0, len(rows), size)]
    kept: dict[str, str] = {}
    for batch in typed(feed(batches), "T", [("ID", "string")], ("ID",)):
        for row in batch.to_pylist():
            kind, gone = row["_change_type"], row["_key_changed"]
            if kind == "delete" or (kind == "update_preimage" and gone):
                kept.pop(row["ID"], None)
            elif kind != "update_preimage":
                kept[row["ID"]] = row["_key"]
    assert kept == there


@pytest.mark.parametrize("text", ["9999-12-31 23:59:59.999999999", "0001-01-01 00:00:00.9999999"])
def test_digits_below_a_microsecond_are_left_out(text: str) -> None:
    (found,) = _typed([history_row(1, "add", "1", after=b"", values=json.dumps({"AT": text}))])
    assert found["AT"].isoformat(" ") == text[:26]
    assert found["_rescued"] is None


def test_columns_come_from_the_catalogue_of_the_database() -> None:
    options = SourceOptions(
        (str(fixture_dir("h2") / "ddl-1024"),), "changes", collection="PUBLIC.T"
    )
    assert with_collection(options).typed == (("ID", "int"), ("NAME", "string"), ("X", "int"))


@pytest.mark.parametrize("name", ["PUBLIC.NONE", "T"])
def test_an_unknown_collection_is_refused_with_those_that_are_there(name: str) -> None:
    options = SourceOptions((str(fixture_dir("h2") / "ddl-1024"),), "changes", collection=name)
    with pytest.raises(OptionError, match=r"PUBLIC\.T, PUBLIC\.U"):
        with_collection(options)


@pytest.mark.parametrize("name", ["public.t", "Public.T", "PUBLIC.T"])
def test_letters_of_a_collection_s_name_may_be_of_another_case(name: str) -> None:
    options = SourceOptions((str(fixture_dir("h2") / "ddl-1024"),), "changes", collection=name)
    assert with_collection(options).collection == "PUBLIC.T"


def test_near_names_of_collections_are_said() -> None:
    options = SourceOptions((str(fixture_dir("h2") / "ddl-1024"),), "changes", collection="t")
    with pytest.raises(OptionError, match=r"Did you mean PUBLIC\.T\?"):
        with_collection(options)


def test_columns_of_a_collection_are_named_in_any_letters_of_case_and_are_its_own() -> None:
    given = SourceOptions((str(fixture_dir("h2") / "ddl-1024"),), "changes", collection="PUBLIC.T")
    found = with_collection(replace(given, columns=("id", "_KEY", "NAME")))
    assert found.schema.names == ["ID", "_key", "NAME"]
    for name, said in (("OTHER", "columns of PUBLIC.T: ID, NAME, X.*found OTHER"), ("id", "twice")):
        with pytest.raises(OptionError, match=said):
            with_collection(replace(given, columns=("ID", name)))


def test_a_collection_is_an_option_of_the_change_feed() -> None:
    for other in ({}, {"table": "files"}, {"table": "changes", "feed": "false"}):
        with pytest.raises(OptionError, match="collection is for"):
            parse({"path": "/l", "collection": "T"} | other)


def test_through_spark_a_collection_has_its_columns(spark: SparkSession) -> None:
    path = str(fixture_dir("h2") / "ddl-1024")
    source = spark.read.format("tallystick").option("path", path)
    shown = source.option("table", "collections").load()
    wanted = [("ID", "INTEGER", "int"), ("NAME", "VARCHAR", "string"), ("X", "INTEGER", "int")]
    rows = shown.where("collection = 'PUBLIC.U'").orderBy("position").collect()
    assert rows[0]["stored"] == ["PUBLIC.U"]
    assert [(row["column"], row["declared"], row["kind"]) for row in rows] == wanted
    changes = source.option("table", "changes").option("beforeImages", "history")
    table = changes.option("collection", "PUBLIC.T").load()
    assert table.columns == ["ID", "NAME", "X", *OF_FEED]
    all_changes = spark.read.format("tallystick").option("table", "changes").load(path)
    ours = all_changes.where("collection = 'PUBLIC.T' and _change_type = 'insert'")
    texts = {(row["key"], json.loads(row["values"])["NAME"]) for row in ours.collect()}
    found = table.where("_change_type = 'insert' AND ID >= 0").collect()
    assert {(row["_key"], row["NAME"]) for row in found} == texts
    assert texts


DERBY = str(fixture_dir("derby") / "rollbacks")


def _derby_changes(path: str = DERBY, **given: str) -> list[dict[str, Any]]:
    wanted = {"path": path, "table": "changes", "collection": "APP.T"}
    options = with_collection(parse(wanted | given))
    assert options.typed == (("ID", "int"), ("V", "string"), ("W", "string"))
    found = (batch for task in tasks(options) for batch in execute(task, options))
    return [row for batch in found for row in batch.to_pylist()]


def test_an_update_of_some_columns_is_a_whole_row() -> None:
    _, _, _, before, after, _ = _derby_changes()
    assert (before["_change_type"], after["_change_type"]) == (
        "update_preimage",
        "update_postimage",
    )
    assert [before[name] for name in ("ID", "V", "W")] == [1, "one", None]
    assert [after[name] for name in ("ID", "V", "W")] == [1, "UNO", None]
    partial = _derby_changes(beforeImages="log")[4]
    assert [partial[name] for name in ("ID", "V", "W")] == [None, "UNO", None]


def test_a_stream_of_a_table_gives_what_a_batch_gives(tmp_path: Path) -> None:
    log, parts = reading_of(Path(DERBY)), sorted(Path(DERBY, "log").iterdir())
    ends = {one.place: one.offset + one.length for one in log.scan.ranges()}
    commits = sorted({one.commit_sequence for one in log.changes_of("APP.T")})
    (tmp_path / "log").mkdir()
    wanted = {"path": str(tmp_path / "log"), "table": "changes", "collection": "APP.T"}
    options = with_collection(parse(wanted | {"path": DERBY, "imagesFolder": str(tmp_path / "i")}))
    options = replace(options, paths=(str(tmp_path / "log"),))
    position, rows = Position(), list[dict[str, Any]]()
    for end in (*(ends[commit] for commit in commits), None):
        for part in parts:
            data = unpacked(part)
            is_log = part.name.startswith("log1")
            name = part.name.removesuffix(".gz")
            (tmp_path / "log" / name).write_bytes(
                data[:end].ljust(len(data), b"\0") if is_log else data
            )
        reached = Tailer(options).advance(position)
        for bundle in packed(file_ranges(options, position, reached), 1 << 20, whole_logs=True):
            rows += [row for batch in read(bundle, options) for row in batch.to_pylist()]
        position = reached
    assert len(commits) > 1
    assert rows == _derby_changes(str(tmp_path / "log"))


@pytest.mark.usefixtures("streams")
def test_a_column_that_is_added_after_a_frame_was_made_is_rescued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A query that is started again from the same frame lost its values without a word."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    given = {"path": DERBY, "table": "changes", "collection": "APP.T"}
    given["imagesFolder"] = str(tmp_path / "images")

    def earlier(*asked: Any) -> dict[tuple[str, str], dict[Collection, str]]:
        return {
            key: {replace(one, columns=one.columns[:-1]): log for one, log in found.items()}
            for key, found in catalogue_of(*asked).items()
        }

    with monkeypatch.context() as patch:
        patch.setattr(batch_source, "catalogue_of", earlier)
        frame = TallystickDataSource(given).schema()
    assert frame.names == ["ID", "V", *OF_FEED]
    source = TallystickDataSource(given)
    batch: Any = source.reader(frame)
    stream: Any = source.streamReader(frame)
    end = stream.latestOffset({}, ReadAllAvailable())
    found, streamed = (
        [row for part in parts for one in reader.read(part) for row in one.to_pylist()]
        for reader, parts in ((batch, batch.partitions()), (stream, stream.partitions({}, end)))
    )
    assert streamed == found
    rescued = {row["ID"]: json.loads(row["_rescued"]) for row in found if row["ID"]}
    assert (rescued[2], rescued[3]) == ({"W": None}, {"W": "clob"})


def test_through_spark_a_table_of_derby_has_its_columns(spark: SparkSession) -> None:
    source = spark.read.format("tallystick").option("path", DERBY)
    changes = source.option("table", "changes").option("collection", "APP.T").load()
    from tallystick.pipeline.into import as_debezium

    envelopes = as_debezium(changes.where("_key IS NOT NULL")).collect()
    assert {row["topic"] for row in envelopes} == {"tallystick.APP.T"}
    values = [json.loads(row["value"]) for row in envelopes]
    assert Counter(one["op"] for one in values) == {"c": 4, "u": 1}
    (updated,) = (one for one in values if one["op"] == "u")
    assert updated["after"] == {"ID": 1, "V": "UNO", "W": None, "_rescued": None}
    assert (updated["before"], updated["source"]["table"]) == (None, "APP.T")
    inserted = changes.where("_change_type = 'insert' AND ID > 1").orderBy("ID").collect()
    assert [(row["ID"], row["V"], row["W"]) for row in inserted] == [
        (2, "two", None),
        (3, "three", "clob"),
        (7, "seven", None),
    ]


def test_through_spark_the_changes_of_users_tables_can_be_told_from_the_catalogue_s(
    spark: SparkSession,
) -> None:
    _, query = guide_examples()
    source = spark.read.format("tallystick").option("path", DERBY)
    for table in ("changes", "collections"):
        source.option("table", table).load().createOrReplaceTempView(table)
    rows = eval(query, {"spark": spark}).collect()
    new = [row["name"] for row in rows if row["_change_type"] != "update_preimage"]
    assert Counter(new) == {"APP.T": 5}


def test_through_spark_messages_of_artemis_have_their_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_messages(tmp_path / "journal")
    write_bindings(tmp_path / "bindings")
    source = spark.read.format("tallystick").option("path", str(tmp_path))
    changes = source.option("table", "changes").option("collection", "messages").load()
    sent = changes.where("_change_type = 'insert'").select("message_id", "address", "text")
    assert [tuple(row) for row in sent.orderBy("message_id").collect()] == [
        (7, "orders", "one"),
        (8, "orders", "two"),
    ]
    queues = source.option("table", "changes").option("collection", "queues").load()
    assert [row["name"] for row in queues.collect()] == ["left"]


def _collections(path: Path, **given: str) -> list[dict[str, Any]]:
    options = parse({"path": str(path), "table": "collections"} | given)
    found = (batch for task in tasks(options) for batch in execute(task, options))
    return [row for batch in found for row in batch.to_pylist()]


def test_collections_tell_how_much_was_changed_in_them() -> None:
    rows = _collections(fixture_dir("derby") / "rollbacks")
    known = {(row["collection"], row["column"], row["changes"]) for row in rows if row["column"]}
    assert {("APP.T", "ID", 5), ("APP.T", "V", 5), ("APP.FLUSH1", "X", 0)} <= known
    catalogue = {row["collection"] for row in rows if row["column"] is None}
    assert "96" in catalogue  # its own tables: by number, as no database is beside the log
    stored = {row["collection"]: row["stored"] for row in rows}
    assert stored.pop("96") == ["96"]
    users = reading_of(fixture_dir("derby") / "rollbacks").changes()
    assert sum(one.collection in stored["APP.T"] for one in users) == 5
    assert catalogue.isdisjoint(stored["APP.T"])
    fewer = _collections(fixture_dir("derby") / "rollbacks", columns="collection,column")
    assert {(row["collection"], row["column"]) for row in fewer} == {
        (name, column) for name, column, _ in known
    }


class Renamed:
    """T became U, and another table got its name: changes before that stand under T, too."""

    source = SimpleNamespace(system="derby")
    of = MappingProxyType({"T": 2, "U": 3})

    def collections(self) -> list[Collection]:
        columns = (Column("ID", "INTEGER", "int", None),)
        return [Collection("T", columns, ("T",)), Collection("U", columns, ("T", "U"))]

    def changes(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(collection=name) for name in "TTTTUV"]

    def changes_of(self, name: str, *_places: int | None) -> list[int]:
        return [*range(self.of[name])]

    def rows_before(self, _name: str) -> list[tuple[str, dict[str, Any]]]:
        return []


def test_changes_of_a_name_that_was_given_again_are_counted_by_table() -> None:
    rows = collection_rows(cast(Any, Renamed()), "/l", count=True)
    assert {row["collection"]: row["changes"] for row in rows} == {"T": 2, "U": 3, "V": 1}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("system", ["h2", "cloudtran", "bitronix", "jboss"])
def test_collections_are_those_of_the_changes(system: str) -> None:
    folder = fixture_dir(system)
    shown = Counter[tuple[str, str]]()
    for row in _collections(folder):
        if row["position"] in (None, 0):
            shown[row["log"], row["collection"]] += row["changes"]
    options = parse({"path": str(folder), "table": "changes", "feed": "false"})
    counted = Counter[tuple[str, str]]()
    for task in tasks(options):
        for batch in execute(task, options):
            counted.update(
                zip(*(batch[name].to_pylist() for name in ("log", "collection")), strict=True)
            )
    assert {one: count for one, count in shown.items() if count} == counted
