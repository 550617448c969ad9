"""Every journal of the original code: the verdict is the original's, and no file changes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import RECORDS, plain, record_batches
from tallystick.records import State, jsonable
from tallystick.systems.jboss.reader import JournalReading
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.testing.spans import check_tiling
from tests.fixtures import cases, fixture_dir
from tests.kit import same_json, untouched
from tests.systems.jboss.build import sources

KEYS = (
    "loaded",
    "error",
    "live_records",
    "prepared_transactions",
    "incomplete_transactions",
    "failed_transactions",
    "max_id",
)
CASES = cases("jboss")
CODE = {"g3-artemis-main": "g3-artemis", "g3-hornetq-2.4.9": "g3-hornetq"}
EVERY_CASE = pytest.mark.parametrize("case", CASES)


@cache
def manifest(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((fixture_dir("jboss") / case / "manifest.json").read_text())
    return found


def code_of(case: str) -> str:
    generation = str(manifest(case)["generation"])
    return CODE.get(generation, generation.partition("-")[0])


@cache
def reading(case: str) -> JournalReading:
    """The reading of a case by its bytes alone.

    Two facts are in no byte and come from the manifest: that an empty folder is a journal, and
    the user version with which a journal was loaded.
    """
    folder = fixture_dir("jboss") / case
    if not manifest(case)["files"]:
        empty = LogSource("jboss", str(folder), ())
        return JournalReading(empty, ReadOptions(settings={"generation": code_of(case)}))
    (source,) = sources(folder)
    settings = {"user_version": "0"} if "mismatch" in case else {}
    return JournalReading(source, ReadOptions(settings=settings))


@pytest.mark.sampled(60)
@EVERY_CASE
def test_engine_verdict_is_the_original_loaders(case: str) -> None:
    oracle = manifest(case)["oracle"]
    expected = {key: oracle[key] for key in KEYS if key in oracle}
    same_json(jsonable(reading(case).verdict().engine), expected)


@pytest.mark.sampled(65)
@EVERY_CASE
def test_changes_come_in_the_order_of_the_callbacks(case: str) -> None:
    events = manifest(case)["oracle"].get("callback_events")
    if events is None:  # the loader gave up
        return
    ours = [(c.kind.value, int(c.key)) for c in reading(case).changes()]
    theirs = [(event[0], event[1]) for event in events]
    if code_of(case) in ("g1a", "g1b"):  # deletes of one transaction come in a hash set's order
        ours, theirs = sorted(ours), sorted(theirs)
    assert ours == theirs


@pytest.mark.sampled(65)
@EVERY_CASE
def test_spans_tile_every_file(case: str) -> None:
    for file in reading(case).files():
        check_tiling(file)


@pytest.mark.sampled(30)
@EVERY_CASE
def test_batches_are_the_records_row_by_row(case: str) -> None:
    one = reading(case)
    ours = pa.Table.from_batches([plain(batch) for batch in one.batches(rows=5)], RECORDS)
    objects = record_batches(one.records(), one.source.path, "none")
    theirs = pa.Table.from_batches(list(objects), RECORDS)
    assert ours.drop(["attributes"]).to_pylist() == theirs.drop(["attributes"]).to_pylist()


@pytest.mark.sampled(30)
@EVERY_CASE
def test_splits_give_every_record_once(case: str) -> None:
    one = reading(case)
    size = sum(file.size for file in one.files())
    whole = [(r.file, r.offset) for r in one.records()]
    parts = [
        (row["file"], row["offset"])
        for split in one.splits(max(300, size // 7))
        for batch in one.batches(split)
        for row in batch.select(["file", "offset"]).to_pylist()
    ]
    assert parts == whole


@EVERY_CASE
def test_header_ids_and_sizes_are_the_manifests(case: str) -> None:
    expected = {(one["name"], one["size"], one["file_id"]) for one in manifest(case)["files"]}
    journal = reading(case).journal
    assert {(file.name, file.size, file.file_id) for file in journal.files} == expected


@EVERY_CASE
def test_generation_is_identified_by_the_bytes(case: str) -> None:
    """Generations that write the same bytes for these operations count as one."""
    if not manifest(case)["files"]:
        return
    ours, theirs = reading(case).journal.generation.name, code_of(case)
    alike = {"g1a": {"g1b", "g1c"}, "g1b": {"g1c"}}
    if theirs == "g2" and "format1-appended" in case:
        theirs = "g3-hornetq"  # later code wrote into it
    assert ours == theirs or theirs in alike.get(ours, set())


def test_nothing_changes_while_everything_is_read() -> None:
    root = fixture_dir("jboss") / "g3-artemis-main"
    with untouched(root):
        for case in (one for one in CASES if one.startswith("g3-artemis-main")):
            one = JournalReading(reading(case).source, ReadOptions())
            one.verdict()
            list(one.records(salvage=True))


SILENT_LOSS = {
    "circular-reuse-nio-stale-header": "records-unheaded",
    "format1-appended-by-artemis": "records-appended",
    "format1-appended-by-hornetq-2.4": "records-appended",
    "missing-first-file": "update-without-add",
}


@pytest.mark.parametrize("case", [one for one in CASES if Path(one).name in SILENT_LOSS])
def test_silent_loss_is_reported(case: str) -> None:
    codes = {finding.code for finding in reading(case).findings()}
    assert SILENT_LOSS[Path(case).name] in codes
    assert any(finding.severity.value == "loss" for finding in reading(case).findings())


SOUND = ("basic", "tx-commit", "tx-prepared", "compacted", "circular-reuse", "holes-stale")


@pytest.mark.parametrize("case", [one for one in CASES if Path(one).name in SOUND])
def test_sound_journals_raise_no_alarm(case: str) -> None:
    alarms = [f for f in reading(case).findings() if f.severity.value in ("damage", "loss")]
    assert alarms == []
    assert reading(case).verdict().differences == ()


def test_salvage_gives_the_records_that_the_loader_drops() -> None:
    one = reading("g2-hornetq-2.1.2/format1-appended-by-artemis")
    kept = list(one.records())
    every = list(one.records(salvage=True))
    extra = [record for record in every if record.attributes.get("salvaged")]
    assert [record.type for record in extra] == ["ADD", "ADD_TX", "COMMIT", "DELETE"]
    assert len(every) == len(kept) + len(extra)


# -- the estate -----------------------------------------------------------------------------

SITUATIONS = sorted(path.parent.name for path in fixture_dir("estate").glob("*/artemis"))


def estate(situation: str) -> JournalReading:
    (source,) = sources(fixture_dir("estate") / situation / "artemis")
    return JournalReading(source, ReadOptions())


def in_estate(situation: str) -> dict[str, Any]:
    path = fixture_dir("estate") / situation / "manifest.json"
    found: dict[str, Any] = json.loads(path.read_text())["real_systems"]["artemis"]
    return found


@pytest.mark.parametrize("situation", SITUATIONS)
def test_in_doubt_branches_carry_their_xid(situation: str) -> None:
    ours = [
        (one.transaction, one.format_id, one.gtrid, one.bqual)
        for one in estate(situation).transactions()
        if one.state is State.PREPARED
    ]
    theirs = [
        (p["journal_tx"], p["format_id"], bytes.fromhex(p["gtrid"]), bytes.fromhex(p["bqual"]))
        for p in in_estate(situation)["prepared"]
    ]
    assert ours == theirs


@pytest.mark.parametrize("situation", SITUATIONS)
def test_dropped_transactions_are_the_real_ones(situation: str) -> None:
    engine = estate(situation).verdict().engine
    ours = [f"{one['txId']}:{len(one['records'])}" for one in engine["failed_transactions"]]
    assert ours == in_estate(situation)["incomplete_transactions_dropped"]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_committed_branches_keep_the_xid_of_their_prepare(situation: str) -> None:
    ended = [t for t in estate(situation).transactions() if t.state is State.COMMITTED]
    assert ended
    assert any(one.gtrid is not None for one in ended)
    assert all(one.evidence_type == "COMMIT" for one in ended)
