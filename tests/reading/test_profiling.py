"""Latencies and rates of one log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import RECORDS, TRANSACTIONS, batch_of
from tallystick.reading import profiling
from tallystick.reading.profiling import PROFILE, LogProfile, profile_rows
from tallystick.systems.protocol import LogReading, LogSource

Row = dict[str, Any]


class Reading:
    """A log without files."""

    source = LogSource("bitronix", "/e/b", ())


def profile(
    monkeypatch: pytest.MonkeyPatch, records: list[Row], transactions: list[Row]
) -> dict[tuple[str | None, int | None], Row]:
    """Rows by resource and bucket."""
    tables = {"records": (records, RECORDS), "transactions": (transactions, TRANSACTIONS)}

    def batches_of(_: object, table: str, **__: object) -> Iterator[pa.RecordBatch]:
        rows, schema = tables[table]
        for place in range(0, len(rows), 2):
            yield batch_of(rows[place : place + 2], schema)

    monkeypatch.setattr(profiling, "batches_of", batches_of)
    rows = [*profile_rows(cast(LogReading, Reading()))]
    assert all(row.keys() <= set(PROFILE.names) for row in rows)
    batch_of(rows, PROFILE)  # every value has its column's type
    return {(row["resource"], row["bucket"]): row for row in rows}


def record(time: int | None, length: int, clock: str = "wall_ms") -> Row:
    return {"clock": clock, "time": time, "length": length}


def transaction(state: str, first: int | None, last: int | None, *participants: str) -> Row:
    return {
        "clock": "wall_ms", "state": state, "first_time": first, "last_time": last, "records": 3,
        "participants": list(participants),
    }  # fmt: skip


def test_records_are_counted_per_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [record(1_000, 10), record(59_999, 30), record(60_000, 5), record(None, 1)]
    found = profile(monkeypatch, [*records, record(-1, 7), record(2_000, 2)], [])
    shown = {
        bucket: (row["records"], row["bytes"], row["record_bytes_max"])
        for (_, bucket), row in found.items()
    }
    assert shown == {0: (3, 42, 30), 60: (1, 5, 5), None: (1, 1, 1), -60: (1, 7, 7)}


def test_transactions_have_latencies_and_ages(monkeypatch: pytest.MonkeyPatch) -> None:
    found = profile(
        monkeypatch,
        [],
        [
            *(transaction("committed", 0, 100 * size, "a") for size in range(1, 101)),
            transaction("prepared", 0, 2_000, "a", "b"),
            transaction("prepared", 0, 3_000),
            transaction("rolled_back", 0, 61_000),
            transaction("committed", None, None),
        ],
    )
    whole = found[None, 0]
    assert (whole["transactions"], whole["committed"], whole["in_doubt"]) == (102, 100, 2)
    latencies = (whole["latency_p50"], whole["latency_p99"], whole["latency_max"])
    assert latencies == (5.0, 9.9, 10.0)
    assert whole["in_doubt_age_max"] == 59.0
    assert (whole["group_records_avg"], whole["group_records_max"]) == (3.0, 3)
    assert found["a", 0]["transactions"] == 101
    assert found["b", 0]["in_doubt_age_max"] == 59.0
    assert found[None, 60]["rolled_back"] == 1
    assert "latency_p50" not in found[None, 60]
    assert (found[None, None]["committed"], found[None, None]["transactions"]) == (1, 1)


def test_a_log_without_a_clock_has_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    none = {"clock": "none"}
    found = profile(
        monkeypatch,
        [record(5, 10, "none"), record(None, 10, "none")],
        [transaction("committed", 1, 5) | none, transaction("prepared", 1, 5) | none],
    )
    (row,) = found.values()
    assert (row["bucket"], row["records"], row["bytes"], row["transactions"]) == (None, 2, 20, 2)
    assert not {"latency_p50", "in_doubt_age_max"} & row.keys()


def test_parts_of_a_log_fold_into_the_profile_of_the_whole() -> None:
    records = [record(minute * 60_000, size) for minute in (0, 1, 1) for size in (5, 7)]
    ended = [transaction("committed", 0, 61_000, "a"), transaction("prepared", 0, 125_000)]
    whole, *parts, fold = (LogProfile("fake", "/e") for _ in range(6))
    whole.add_records(batch_of(records, RECORDS))
    whole.add_transactions(batch_of(ended, TRANSACTIONS))
    parts[0].add_records(batch_of(records[:3], RECORDS))
    parts[1].add_records(batch_of(records[3:], RECORDS))
    parts[2].add_transactions(batch_of(ended[1:], TRANSACTIONS))
    parts[3].add_transactions(batch_of(ended[:1], TRANSACTIONS))
    for part in parts:
        fold.merge(LogProfile.of_sums(json.loads(json.dumps(part.sums()))))
    expected = [dict.fromkeys(PROFILE.names) | row for row in whole.rows()]
    found = [dict.fromkeys(PROFILE.names) | row for row in fold.rows()]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
