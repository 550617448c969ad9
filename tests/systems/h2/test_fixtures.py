"""Every file written by the real engine, against what the real engine says about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tallystick.records import State
from tallystick.storage.crc import crc32
from tallystick.systems.h2.engine.opening import EngineResult
from tallystick.systems.h2.engine.tables import UndonePages
from tallystick.systems.h2.format import layout
from tallystick.testing.spans import check_tiling
from tests.fixtures import cases, fixture_dir
from tests.kit import same_json, untouched
from tests.systems.h2.kit import fixture, manifest, reading_of

CASES = cases("h2")
ESTATE = sorted(
    str(path.parent.relative_to(fixture_dir("estate")))
    for path in fixture_dir("estate").glob("*/h2/bank.h2.db.gz")
)
ENGINE_KEYS = ("records", "stage_ends", "first_section", "last_section")
RECOVERY_KEYS = ("opened", "read_only", "in_doubt", "error_code")


def result(case: str) -> EngineResult:
    found = fixture(case)._result
    assert isinstance(found, EngineResult)
    return found


@pytest.mark.sampled(20)
@pytest.mark.parametrize("case", CASES)
def test_engine_verdict_is_what_the_engine_said(case: str) -> None:
    with untouched(fixture_dir("h2") / case):
        verdict = fixture(case).verdict()
    oracle = manifest(case)
    engine: dict[str, Any] = json.loads(json.dumps(verdict.to_dict()["engine"]))
    same_json({key: engine[key] for key in ENGINE_KEYS}, {key: oracle[key] for key in ENGINE_KEYS})
    for key in RECOVERY_KEYS:
        assert engine["recovery"].get(key) == oracle["recovery"].get(key)


@pytest.mark.sampled(17)
@pytest.mark.parametrize("case", CASES)
def test_records_carry_the_oracle_s_list(case: str) -> None:
    page_size = manifest(case)["header"]["page_size"]
    for record, oracle in zip(fixture(case).records(), manifest(case)["records"], strict=True):
        line = json.loads(json.dumps(record.to_dict()))
        assert line["type"] == oracle["type"]
        assert line["offset"] == oracle["page"] * page_size + oracle["offset"]
        assert line["attributes"] | {"offset": oracle["offset"], "type": oracle["type"]} == (
            line["attributes"] | oracle
        )


@pytest.mark.parametrize("case", CASES)
def test_spans_tile_the_file(case: str) -> None:
    (file,) = fixture(case).files()
    check_tiling(file)


@pytest.mark.parametrize("case", CASES)
def test_undo_stage_leaves_the_pages_that_the_engine_left(case: str) -> None:
    found = result(case)
    assert found.file.pages is not None
    assert found.recovery is not None
    undone = UndonePages(found.file.pages, found.file.stream, found.recovery)
    changed = {}
    for page_id in found.recovery.undo:
        page = undone.page(page_id)
        image = bytes(found.file.pages.page_size) if page is None else bytes(page)
        image = layout.seal(bytearray(image), page_id)
        if image != found.file.pages.page(page_id):
            changed[str(page_id)] = f"{crc32(image):x}"
    assert changed == manifest(case)["pages_changed_by_stage0_crc32"]


@pytest.mark.parametrize("case", CASES)
def test_notes_of_the_stages_agree(case: str) -> None:
    found = result(case)
    assert found.recovery is not None
    for note in manifest(case)["stage_notes"]:
        if "reserved_index_roots" in note:
            roots = {str(page): pos for page, pos in found.recovery.index_roots.items()}
            assert roots == note["reserved_index_roots"]
        if "used_log_pages" in note:
            assert sorted(found.recovery.used_pages) == sorted(note["used_log_pages"])


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("timezone")])
def test_another_zone_reads_what_another_process_read(case: str) -> None:
    oracle = manifest(case)["other_runs"]["opened by a process in time zone UTC"]
    rows = [row[1:] for row in oracle["tables"]["PUBLIC.Z"]["rows"]]
    ours = [
        list((change.values or {}).values())
        for change in reading_of(fixture_dir("h2") / case, timezone="UTC").changes()
    ]
    assert ours == rows


@pytest.mark.parametrize("case", ESTATE)
def test_in_doubt_transactions_of_the_estate_are_parsed(case: str) -> None:
    folder: Path = fixture_dir("estate") / case
    oracle = json.loads((folder.parent / "manifest.json").read_text())["real_systems"]["h2"]
    reading = reading_of(folder / "bank.h2.db.gz")
    with untouched(folder):
        engine = reading.verdict().engine
        prepared = [one for one in reading.transactions() if one.state is State.PREPARED]
    assert engine["recovery"]["in_doubt"] == oracle["INFORMATION_SCHEMA.IN_DOUBT"]
    branches = {
        (one.format_id, (one.gtrid or b"").hex(), (one.bqual or b"").hex()) for one in prepared
    }
    assert branches == {(one["format_id"], one["gtrid"], one["bqual"]) for one in oracle["recover"]}
