"""Stages on small frames: findings, profile, the state as of a time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tallystick.arrow.schemas import CHANGES, FINDINGS, RECORDS, TRANSACTIONS
from tallystick.reconcile.structures import GLOBAL_TRANSACTIONS
from tests.fixtures import fixture_dir

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, schema: pa.Schema, rows: list[dict[str, Any]]) -> DataFrame:
    """Rows of a table; what they leave out is null."""
    from tallystick.pipeline.source.batch import spark_schema

    shaped = [tuple(row.get(name) for name in schema.names) for row in rows]
    return spark.createDataFrame(shaped, spark_schema(schema))


def change(sequence: int, kind: str, key: str, value: str, collection: str = "t") -> dict[str, Any]:
    return {
        "system": "h2",
        "log": "/e/h2",
        "commit_sequence": sequence,
        "ordinal": 0,
        "kind": kind,
        "collection": collection,
        "key": key,
        "time": 100 * sequence,
        "after": value.encode(),
    }


CHANGE_ROWS = [
    change(1, "add", "a", "1"),
    change(2, "add", "b", "2"),
    change(3, "update", "a", "3"),
    change(4, "delete", "b", ""),
    change(5, "add", "x", "5", "other"),
    change(6, "truncate", "", ""),
    change(7, "add", "c", "7"),
]

STATES: dict[str, tuple[dict[str, int], dict[str, bytes]]] = {
    "before-anything": ({"sequence": 0}, {}),
    "an-update-replaces": ({"sequence": 3}, {"a": b"3", "b": b"2"}),
    "a-deleted-key-is-gone": ({"time": 499}, {"a": b"3"}),
    "truncation-empties-its-own-collection": ({"sequence": 6}, {"x": b"5"}),
    "the-newest": ({}, {"x": b"5", "c": b"7"}),
}


@pytest.mark.parametrize("name", STATES)
def test_as_of(spark: SparkSession, name: str) -> None:
    from tallystick.pipeline.stages import as_of

    limits, expected = STATES[name]
    found = as_of(frame(spark, CHANGES, CHANGE_ROWS), **limits).collect()
    assert {row.key: bytes(row.after) for row in found} == expected


def test_as_of_is_the_row_after_an_update_where_nothing_tells_it_from_the_row_before(
    spark: SparkSession,
) -> None:
    """A feed that was read without _change_type has both, in whatever order they come."""
    from tallystick.pipeline.stages import as_of

    after = CHANGE_ROWS[0] | {"kind": "update", "after": b"new"}
    rows = frame(spark, CHANGES, [after, after | {"after": None}]).coalesce(1)
    assert [row.after for row in as_of(rows).collect()] == [b"new"]


def test_as_of_what_are_no_changes_is_refused_in_a_sentence(spark: SparkSession) -> None:
    from tallystick.pipeline.stages.changes import as_of

    with pytest.raises(ValueError, match=r"lack columns; .*found none of collection, key"):
        as_of(frame(spark, RECORDS, []), time=1)


def test_alarms_become_findings_beside_those_of_the_logs(spark: SparkSession) -> None:
    from tallystick.pipeline.stages import findings

    logs = frame(spark, FINDINGS, [{"code": "torn-tail", "severity": "warning", "log": "/e/d"}])
    judged = frame(
        spark,
        GLOBAL_TRANSACTIONS,
        [
            {"gtrid": b"\x01", "resolution": "commit", "alarm": "lost-commit", "evidence": "e"},
            {"gtrid": b"\x02", "resolution": "none"},
        ],
    )
    copies = spark.createDataFrame(
        [("h2", "/e/old", "/e/h2")], "system string, log string, original string"
    )
    found = {row.code: row for row in findings(logs, judged, copies).collect()}
    assert set(found) == {"torn-tail", "lost-commit", "copy"}
    assert (found["copy"].severity, found["copy"].log) == ("info", "/e/old")
    assert "/e/h2" in found["copy"].message
    assert found["lost-commit"].severity == "loss"
    assert found["lost-commit"].message == "global transaction 01: e"


def test_strangers_are_told_in_one_line() -> None:
    from tallystick.pipeline.summary import strangers

    assert strangers(None, 0) == []
    assert strangers("/e/b: no log: x", 1) == ["/e/b: no log: x"]
    (line,) = strangers("/e/a: no log: y", 3)
    assert line.startswith("/e/a: no log: y; and files in 2 other folders")


def test_profile_counts_per_bucket_and_resource(spark: SparkSession) -> None:
    from tallystick.pipeline.stages import profile

    place = {"system": "bitronix", "log": "/e/b", "clock": "wall_ms"}
    records = [place | {"time": time, "length": 10} for time in (1_000, 2_000, 61_000)]
    transactions = [
        place
        | {
            "state": "committed",
            "first_time": 1_000,
            "last_time": 1_500,
            "records": 3,
            "participants": ["a", "b"],
        },
        place
        | {
            "state": "prepared",
            "first_time": 2_000,
            "last_time": 2_000,
            "records": 1,
            "participants": ["a"],
        },
        place
        | {
            "state": "committed",
            "first_time": 61_000,
            "last_time": 62_000,
            "records": 3,
            "participants": [],
        },
    ]
    found = profile(frame(spark, RECORDS, records), frame(spark, TRANSACTIONS, transactions))
    rows = {(row.resource, row.bucket): row for row in found.collect()}
    assert set(rows) == {(None, 0), (None, 60), ("a", 0), ("b", 0)}
    whole = rows[None, 0]
    assert (whole.records, whole.bytes, whole.transactions) == (2, 20, 2)
    assert (whole.committed, whole.in_doubt, whole.latency_p50) == (1, 1, 0.5)
    assert whole.in_doubt_age_max == 60.0
    assert rows["a", 0].transactions == 2
    assert rows["b", 0].in_doubt == 0


def test_what_is_in_doubt_for_too_long_is_overdue(spark: SparkSession) -> None:
    from tallystick.pipeline.stages import overdue

    place: dict[str, Any] = {"coordinator": "/e/b", "clock": "wall_ms"}
    rows: list[dict[str, Any]] = [
        place | {"gtrid": b"\x01", "resolution": "commit", "last_time": 1_000},
        place | {"gtrid": b"\x02", "resolution": "rollback", "last_time": 9_000},
        place | {"gtrid": b"\x03", "resolution": "none", "last_time": 11_000},
        {"gtrid": b"\x04", "resolution": "foreign"},
    ]
    found = overdue(frame(spark, GLOBAL_TRANSACTIONS, rows), 5).collect()
    assert [(bytes(row.gtrid), row.age_seconds) for row in found] == [(b"\x01", 10.0)]
    rows.append({"coordinator": "/e/c", "clock": "boot_ms", "last_time": 5, "resolution": "commit"})
    last = overdue(frame(spark, GLOBAL_TRANSACTIONS, rows), 5, now=21.0).collect()
    aged = sorted((bytes(row.gtrid), row.age_seconds) for row in last)
    assert aged == [(b"\x01", 20.0), (b"\x02", 12.0)]


def test_what_stands_last_in_a_journal_at_rest_is_overdue_whatever_its_clock_tells(
    spark: SparkSession,
) -> None:
    from tallystick.pipeline.stages import overdue

    place: dict[str, Any] = {"clock": "boot_ms", "resolution": "commit", "last_time": 7_000}
    rows = [
        place | {"gtrid": b"\x01", "coordinator": "/e/dead"},
        place | {"gtrid": b"\x02", "coordinator": "/e/dead", "last_time": 3_000},
        place | {"gtrid": b"\x03", "coordinator": "/e/alive"},
        place | {"gtrid": b"\x04", "coordinator": "/e/changed in the future"},
        place | {"gtrid": b"\x05", "coordinator": "/e/remote"},
    ]
    changed = {"/e/dead": 100.0, "/e/alive": 159.0, "/e/changed in the future": 200.0}
    found = overdue(frame(spark, GLOBAL_TRANSACTIONS, rows), 5, 160.0, changed).collect()
    aged = sorted((bytes(row.gtrid), row.age_seconds) for row in found)
    assert aged == [(b"\x01", 60.0), (b"\x02", 64.0)]


def test_profile_of_the_source_is_that_of_a_run(spark: SparkSession) -> None:
    from tallystick.pipeline.stages import profile

    source = spark.read.format("tallystick").option("path", str(fixture_dir("estate") / "clean"))
    records = source.option("table", "records").load()
    transactions = source.option("table", "transactions").load()
    ours, run = source.option("table", "profile").load(), profile(records, transactions)
    assert ours.schema.simpleString() == run.schema.simpleString()
    assert Counter(ours.collect()) == Counter(run.collect())
    assert ours.where("latency_p99 is not null").count()
