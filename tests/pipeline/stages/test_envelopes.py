"""Envelopes of Debezium: keys, topics, old rows, and schemas beside them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import CHANGES, batch_of
from tallystick.pipeline.change_feed import FEED, feed
from tallystick.pipeline.row_images import WITH_IMAGES
from tallystick.pipeline.typed import typed
from tests.fixtures import fixture_dir
from tests.pipeline.histories import Row, history_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (("ID", "int"), ("B", "string"), ("D", "date"), ("AT", "timestamp_ntz"),
           ("SUM", "decimal(31,31)"), ("DATA", "binary"))  # fmt: skip


def _values(number: int, text: str, **more: str) -> str:
    return json.dumps({"ID": str(number), "B": text, **more})


def _history() -> list[Row]:
    """Changes of one table; of the update of the key, and of the delete, the old row is known."""
    first = {"D": "2020-02-29", "AT": "1969-12-31 23:59:59.999999", "SUM": "0", "DATA": "00ff"}
    update = history_row(2, "update", "r1", values=_values(1, "two"), gtrid=b"\x01\x02")
    moved = history_row(3, "update", "r1", values=_values(5, "two"))
    deleted = history_row(4, "delete", "r1", values=_values(5, "two"))
    return [
        history_row(1, "add", "r1", values=_values(1, "one", **first), clock="wall_ms", time=1_500),
        update | {"before_values": _values(1, "one", **first)},
        moved | {"before_values": _values(1, "two")},
        deleted | {"before_values": _values(5, "two")},
        history_row(5, "delete", "r2"),
        history_row(6, "truncate", ""),
    ]


def _typed(
    spark: SparkSession, key: tuple[str, ...], history: list[Row] | None = None
) -> DataFrame:
    from tallystick.pipeline.source.batch import spark_schema

    rows = [row | {"collection": "A B.T"} for row in history or _history()]
    batches = [batch_of(rows[at : at + 2], WITH_IMAGES) for at in range(0, len(rows), 2)]
    table = pa.Table.from_batches(typed(feed(batches), "A B.T", COLUMNS, key))
    noted = {"tallystick.options": '{"collection": "A B.T"}', "tallystick.key": json.dumps(key)}
    frame = spark.createDataFrame(table, spark_schema(table.schema)).coalesce(1)
    return frame.withMetadata("ID", noted)


def _envelopes(frame: DataFrame, *, schema: bool = False) -> list[tuple[str, Any, Any]]:
    from tallystick.pipeline.into import as_debezium

    return [
        (row["topic"], row["key"] and json.loads(row["key"]), json.loads(row["value"]))
        for row in as_debezium(frame, schema=schema).collect()
    ]


def test_rows_of_a_table_have_their_primary_key_and_the_row_before(spark: SparkSession) -> None:
    found = _envelopes(_typed(spark, ("B", "ID")))
    assert {topic for topic, _, _ in found} == {"tallystick.A_B.T"}
    assert [(value["op"], key) for _, key, value in found] == [
        ("c", {"B": "one", "ID": 1}),
        ("d", {"B": "one", "ID": 1}),
        ("c", {"B": "two", "ID": 1}),
        ("d", {"B": "two", "ID": 1}),
        ("c", {"B": "two", "ID": 5}),
        ("d", {"B": "two", "ID": 5}),
        ("d", {"key": "r2"}),
        ("t", None),
    ]
    rows = [
        tuple(value[side] and (value[side]["ID"], value[side]["B"]) for side in ("before", "after"))
        for _, _, value in found
    ]
    assert rows == [
        (None, (1, "one")),
        ((1, "one"), None),
        (None, (1, "two")),
        ((1, "two"), None),
        (None, (5, "two")),
        ((5, "two"), None),
        ((None, None), None),
        (None, None),
    ]
    assert found[0][2]["after"]["D"] == "2020-02-29"
    assert found[0][2]["after"]["AT"] == "1969-12-31T23:59:59.999999"
    assert found[1][2]["source"]["gtrid"] == "0102"


def test_a_key_that_another_row_got_before_is_not_deleted(spark: SparkSession) -> None:
    moved = [
        history_row(1, "update", f"r{at}", values=_values(at + 1, "x"))
        | {"before_values": _values(at, "x")}
        for at in range(3)
    ]
    found = _envelopes(_typed(spark, ("ID",), moved))
    assert [(value["op"], key["ID"]) for _, key, value in found] == [
        ("d", 0),
        ("c", 1),
        ("c", 2),
        ("c", 3),
    ]


def test_without_a_primary_key_the_feed_s_key_names_the_row(spark: SparkSession) -> None:
    found = _envelopes(_typed(spark, ()))
    assert [value["op"] for _, _, value in found] == ["c", "u", "u", "d", "d", "t"]
    assert [key for _, key, _ in found] == [{"key": "r1"}] * 4 + [{"key": "r2"}, None]
    assert (found[2][2]["before"], found[2][2]["after"]["ID"]) == (None, 5)


def test_columns_of_the_key_that_were_left_out_are_asked_for(spark: SparkSession) -> None:
    from tallystick.pipeline.into import as_debezium

    with pytest.raises(ValueError, match="columns B, too"):
        as_debezium(_typed(spark, ("B", "ID")).drop("B"))


def test_with_schema_each_payload_is_described_field_by_field(spark: SparkSession) -> None:
    found = _envelopes(_typed(spark, ("ID",)), schema=True)
    for topic, key, value in found:
        for whole, name in ((key, "Key"), (value, "Envelope")):
            if whole is not None:
                assert (whole["schema"]["name"], whole["schema"]["optional"]) == (
                    f"{topic}.{name}",
                    False,
                )
                _require_described(whole["schema"], whole["payload"])
    after = found[0][2]["payload"]["after"]
    assert after == {"ID": 1, "B": "one", "D": 18321, "AT": -1, "SUM": "0." + 31 * "0",
                     "DATA": "AP8=", "_rescued": None}  # fmt: skip
    fields = {one["field"]: one for one in found[0][2]["schema"]["fields"]}
    types = {one["field"]: one.get("name", one["type"]) for one in fields["after"]["fields"]}
    assert types == {
        "ID": "int32", "B": "string", "D": "io.debezium.time.Date",
        "AT": "io.debezium.time.MicroTimestamp", "SUM": "string", "DATA": "bytes",
        "_rescued": "string",
    }  # fmt: skip
    assert found[0][1]["payload"] == {"ID": 1}
    required = {name for name, one in fields.items() if not one["optional"]}
    assert required == {"source", "op"}


@pytest.mark.parametrize("key", [("ID",), ("B", "ID"), ()], ids=len)
def test_a_field_of_a_key_is_never_null_so_that_a_sink_can_make_it_the_primary_key(
    spark: SparkSession, key: tuple[str, ...]
) -> None:
    found = _envelopes(_typed(spark, key), schema=True)
    fields = [one for _, whole, _ in found if whole for one in whole["schema"]["fields"]]
    assert fields
    assert not any(one["optional"] for one in fields)


def _require_described(schema: dict[str, Any], payload: dict[str, Any]) -> None:
    """A converter takes a payload only if its fields are those of the schema, in their types."""
    assert [*payload] == [one["field"] for one in schema["fields"]]
    kinds = {"string": str, "bytes": str, "int32": int, "int64": int}
    for one in schema["fields"]:
        value = payload[one["field"]]
        if value is None:
            assert one["optional"]
        elif one["type"] == "struct":
            _require_described(one, value)
        else:
            assert isinstance(value, kinds[one["type"]]), (one, value)


@pytest.mark.parametrize("schema", [False, True])
def test_topics_have_names_of_tables_and_never_their_numbers(
    spark: SparkSession, schema: bool
) -> None:
    given = [("h2", "PUBLIC.T"), ("h2", "15"), ("h2", "15#1"), ("derby", "448"), ("jboss", ""),
             ("derby", "APP.a b"), ("h2", "PUBLIC.15")]  # fmt: skip
    rows = [
        history_row(at, "add", "k", system=one, collection=name, after=b"", values='{"V": 1}')
        for at, (one, name) in enumerate(given, 1)
    ]
    table = pa.Table.from_batches(feed([batch_of(rows, CHANGES)]), FEED)
    found = _envelopes(spark.createDataFrame(table), schema=schema)
    assert [topic for topic, _, _ in found] == [
        "tallystick.h2.PUBLIC.T", "tallystick.h2.unnamed", "tallystick.h2.unnamed",
        "tallystick.derby.unnamed", "tallystick.jboss", "tallystick.derby.APP.a_b",
        "tallystick.h2.PUBLIC.15",
    ]  # fmt: skip
    payloads = [value["payload"] if schema else value for _, _, value in found]
    assert [one["source"]["table"] for one in payloads] == [name for _, name in given]
    assert payloads[0]["after"]["values"] == ('{"V": 1}' if schema else {"V": 1})
    for _, _, value in found if schema else ():
        _require_described(value["schema"], value["payload"])


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize(("case", "name"), [("dec-midd10", "app.t"), ("h-uuid", "PUBLIC.T")])
def test_a_typed_feed_has_the_primary_key_of_its_catalogue(
    spark: SparkSession, case: str, name: str
) -> None:
    path = str(fixture_dir("typed") / case)
    changes = spark.read.format("tallystick").options(table="changes", collection=name).load(path)
    found = _envelopes(changes, schema=True)
    assert {topic for topic, _, _ in found} == {f"tallystick.{name.upper()}"}
    assert [key["payload"] for _, key, _ in found] == [
        {"ID": value["payload"]["after"]["ID"]} for _, _, value in found
    ]


def test_a_typed_table_may_have_a_column_with_the_name_of_one_of_the_feed(
    spark: SparkSession,
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

    found = _envelopes(_typed(spark, ("ID",)).withColumn("collection", F.lit("shells")))
    assert {topic for topic, _, _ in found} == {"tallystick.A_B.T"}
    assert found[0][2]["after"]["collection"] == "shells"
