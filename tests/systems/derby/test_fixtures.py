"""Every fixture against what the engine itself said of it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tallystick.arrow import schemas
from tallystick.records import Outcome, State
from tallystick.storage import recent
from tallystick.testing.spans import check_tiling
from tests import kit
from tests.fixtures import fixture_dir
from tests.kit import same_json, untouched
from tests.systems.derby.logs import CASES, ESTATES, manifest, oracle, reading, reading_of

ENGINE_KEYS = (
    "control",
    "file_headers",
    "file_ends",
    "record_count",
    "checksum_groups",
    "transactions",
    "transactions_summary",
)


@pytest.mark.parametrize("case", CASES)
def test_engine_verdict_is_the_oracles(case: str) -> None:
    truth = manifest(case)
    with untouched(fixture_dir("derby") / case):
        engine = reading(case).verdict().to_dict()["engine"]
    same_json({key: engine[key] for key in ENGINE_KEYS}, {key: truth[key] for key in ENGINE_KEYS})
    # One manifest was made without the scan from the undo mark.
    same_json(engine["real_scan"][: len(truth["real_scan"])], truth["real_scan"])
    assert engine["boots"] is truth["after_real_recovery"]["boots"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
def test_a_log_of_more_files_than_are_held_is_judged_alike(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = reading(case).verdict().to_dict()
    monkeypatch.setattr(recent, "HELD_MAX", 0)
    monkeypatch.setattr(recent, "HELD_MIN", 1)
    assert reading(case).verdict().to_dict() == whole


@pytest.mark.parametrize("case", CASES)
def test_what_the_bytes_tell_counts_transactions_in_the_words_of_every_system(case: str) -> None:
    found = set(reading(case).verdict().to_dict()["strict"]["transactions"])
    assert found <= {*(one.value for one in State), "active_internal"}


@pytest.mark.parametrize("case", CASES)
def test_records_carry_everything_in_the_oracles_list(case: str) -> None:
    ours = [as_oracle(record.to_dict()) for record in reading(case).records()]
    same_json(ours, [without_text(line) for line in oracle(case)])


def as_oracle(record: dict[str, Any]) -> dict[str, Any]:
    number = record["transaction"]
    found = dict(record["attributes"])
    for key in ("format_id", "bqual"):  # the global id in columns of its own
        found.pop(key, None)
    return found | {"op": record["type"], "xid": None if number is None else str(number)}


def without_text(line: dict[str, Any]) -> dict[str, Any]:
    """The engine's prose of a record is not ours to repeat."""
    return {key: value for key, value in line.items() if key != "text"}


@pytest.mark.parametrize("case", CASES)
def test_spans_tile_every_file(case: str) -> None:
    for file in reading(case).files():
        check_tiling(file)
        assert file.bytes_by_outcome()[Outcome.CORRUPT] == 0


@pytest.mark.parametrize("case", CASES)
def test_in_doubt_branches_are_what_the_engine_recovers(case: str) -> None:
    truth = manifest(case)["after_real_recovery"]["xa_recover"]
    found = reading(case)
    assert found.verdict().strict["in_doubt"] == truth
    prepared = [one for one in found.transactions() if one.state is State.PREPARED]
    texts = [f"{o.format_id}:{(o.gtrid or b'').hex()}:{(o.bqual or b'').hex()}" for o in prepared]
    assert texts == truth


@pytest.mark.parametrize("case", CASES)
def test_healthy_logs_lose_nothing(case: str) -> None:
    verdict = reading(case).verdict()
    assert verdict.differences == ()
    assert verdict.strict["lost"] == {"bytes": 0, "records": 0, "ends": []}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rows", [7, 10_000])
def test_batches_agree_with_records_row_by_row(case: str, rows: int) -> None:
    same_rows(reading(case), rows)


def same_rows(log: Any, rows: int = 10_000) -> None:
    """Batches of the whole log and of its splits give the rows that records() gives."""
    kit.same_rows(log, rows)
    expected = rows_of(schemas.record_batches(log.records(), log.source.path, log.clock.value))
    assert rows_of(log.batches(rows=rows)) == expected
    parts = log.splits(8192)
    in_parts = [row for part in parts for row in rows_of(log.batches(part, rows=rows))]
    assert in_parts == expected


def rows_of(batches: Any) -> list[dict[str, Any]]:
    rows = pa.Table.from_batches(
        [schemas.plain(batch) for batch in batches], schemas.RECORDS
    ).to_pylist()
    return [row | {"attributes": None} for row in rows]


@pytest.mark.parametrize("estate", ESTATES)
def test_estate_branches_in_doubt(estate: str) -> None:
    folder = fixture_dir("estate") / estate
    truth = json.loads((folder / "manifest.json").read_text())["real_systems"]["derby"]["recover"]
    log = reading_of(folder / "derby")
    prepared = [one for one in log.transactions() if one.state is State.PREPARED]
    ours = [
        {
            "format_id": one.format_id,
            "gtrid": (one.gtrid or b"").hex(),
            "bqual": (one.bqual or b"").hex(),
        }
        for one in prepared
    ]
    assert sorted(ours, key=str) == sorted(truth, key=str)
