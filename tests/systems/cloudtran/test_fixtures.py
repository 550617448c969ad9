"""Every sample log against its manifest: blocks, both policies, tiling, nothing changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tallystick.records import Outcome
from tallystick.systems.cloudtran.read.scan import BlockState
from tallystick.systems.cloudtran.reader import CloudtranReading
from tallystick.systems.cloudtran.runs.analysis import LOST_AT_END
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.testing.spans import check_tiling
from tests.fixtures import cases, fixture_dir
from tests.kit import same_json, untouched

CASES = cases("cloudtran")
READABLE = {"ok", "first-header-damaged", "second-header-damaged", "both-headers-repaired"}


def manifest_of(case: str) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(
        (fixture_dir("cloudtran") / case / "manifest.json").read_text()
    )
    return manifest


def reading_of(case: str) -> CloudtranReading:
    folder = fixture_dir("cloudtran") / case / "log"
    files = tuple(sorted(str(path) for path in folder.iterdir()))
    return CloudtranReading(LogSource("cloudtran", str(folder), files), ReadOptions())


@pytest.mark.parametrize("case", CASES)
def test_both_policies_equal_the_oracle(case: str) -> None:
    manifest = manifest_of(case)
    with untouched(fixture_dir("cloudtran") / case):
        verdict = reading_of(case).verdict()
    same_json(verdict.to_dict()["engine"], manifest["expect"])


@pytest.mark.parametrize("case", CASES)
def test_blocks_have_the_state_fields_and_entries_of_the_oracle(case: str) -> None:
    manifest = manifest_of(case)
    reading = reading_of(case)
    assert reading.block_format.block_size == manifest["disk_block_size"]
    found = {(one.file.name, one.block.offset): one.block for one in reading.occurrences()}
    for file in manifest["files"]:
        for block in file["blocks"]:
            one = found[file["name"], block["offset"]]
            expected = BlockState.TORN.value if block["state"] == LOST_AT_END else block["state"]
            assert one.state.value == expected
            if expected in READABLE:
                assert one.content is not None
                assert one.length == block["length"]
                assert one.content.size == block["data_size"]
                assert f"{one.content.crc:08x}" == block["crc32"]
                assert one.prologue.sequence == block["sequence"]
                assert one.prologue.codec == block["codec"]
                assert one.prologue.closing == block["closing"]
                assert len(one.entries) == block["count"]


@pytest.mark.parametrize("case", CASES)
def test_records_are_the_entries_of_the_oracle_in_order(case: str) -> None:
    expected = [
        (Path(file["name"]).name, block["offset"], entry)
        for file in manifest_of(case)["files"]
        for block in file["blocks"]
        if block["state"] in READABLE
        for entry in block["entries"]
    ]
    records = [one for one in reading_of(case).records() if one.outcome is Outcome.VALID]
    one = [
        (Path(one.file).name, one.attributes["block_offset"], _as_oracle(one.to_dict()))
        for one in records
    ]
    same_json(one, expected)


def _as_oracle(record: dict[str, Any]) -> dict[str, Any]:
    attributes = record["attributes"]
    entry = {"kind": record["type"], "txid": record["transaction"]}
    for key in ("targets", "operations", "ref", "flags"):
        if key in attributes:
            entry[key] = attributes[key]
    return entry


@pytest.mark.parametrize("case", CASES)
def test_spans_tile_every_file(case: str) -> None:
    for file in reading_of(case).files():
        check_tiling(file)
