"""Every sample pair against what the original classes gave for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tallystick.reading.discovery import discover
from tallystick.records import Record
from tallystick.systems.bitronix import SYSTEM
from tallystick.testing.spans import check_tiling
from tests.kit import same_json, untouched
from tests.systems.bitronix.logs import CASES, folder_of, manifest_of, reading_of

RECORD_KEYS = ("status", "recordLength", "headerLength", "crc32", "endRecord", "gtridServerId")


@pytest.mark.sampled(30)
@pytest.mark.parametrize("case", CASES)
def test_engine_verdict_is_the_oracle(case: str) -> None:
    verdict = reading_of(folder_of(case)).verdict().to_dict()
    same_json(verdict["engine"], manifest_of(case)["oracle"])
    json.dumps(verdict)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("case", CASES)
def test_records_are_those_the_real_cursor_gives(case: str) -> None:
    records = [one for one in _records(case) if one.type != "damaged"]
    oracle = manifest_of(case)["oracle"]["2.1.4"]
    for part, number in (("part1", "1"), ("part2", "2")):
        found = {one.offset: _row(one) for one in records if f"btm{number}" in one.file}
        events = (oracle[part]["cursor"] or {"events": []})["events"]
        expected = {one["offset"]: _oracle(one) for one in events if "error" not in one}
        assert found == expected


@pytest.mark.sampled(40)
@pytest.mark.parametrize("case", CASES)
def test_salvage_gives_all_that_the_plain_reading_gives(case: str) -> None:
    reading = reading_of(folder_of(case))
    everything = {(one.file, one.offset): one for one in reading.records(salvage=True)}
    for one in reading.records():
        assert everything[one.file, one.offset] == one


@pytest.mark.sampled(40)
@pytest.mark.parametrize("case", CASES)
def test_spans_tile_each_file_and_reading_changes_nothing(case: str) -> None:
    with untouched(folder_of(case)):
        reading = reading_of(folder_of(case))
        for file in reading.files():
            check_tiling(file)
        list(reading.transactions())
        reading.findings()


@pytest.mark.parametrize("case", CASES)
def test_the_pair_is_found_by_content(case: str) -> None:
    found = discover(folder_of(case), known=[SYSTEM])
    present = [one for one in manifest_of(case)["files"].values() if one is not None]
    assert [len(log.files) for log in found.logs] == [len(present)]


@pytest.mark.parametrize("case", CASES)
def test_open_transactions_are_the_dangling_ones_of_an_undamaged_pair(case: str) -> None:
    manifest = manifest_of(case)
    opening = manifest["oracle"]["2.1.4"]["open"]
    reading = reading_of(folder_of(case))
    wrong_file = any(one.code == "stale-file-in-use" for one in reading.findings())
    if "damage" in manifest or opening.get("dangling") is None or wrong_file:
        return
    found = {
        one.name: list(one.open_participants)
        for one in reading.transactions()
        if one.state == "committing"
    }
    assert found == {one["gtrid"]: one["uniqueNames"] for one in opening["dangling"]}


def _records(case: str) -> list[Record]:
    return list(reading_of(folder_of(case)).records())


def _row(one: Record) -> dict[str, Any]:
    assert one.gtrid is not None
    return {
        "type": one.type,
        "time": one.time,
        "sequence": one.sequence,
        "gtrid": one.gtrid.hex().upper(),
        "resources": list(one.resources),
    } | {key: one.attributes[key] for key in RECORD_KEYS}


def _oracle(event: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": event["statusName"],
        "time": event["time"],
        "sequence": event["sequenceNumber"],
        "gtrid": event["gtrid"],
        "resources": event["uniqueNames"],
    } | {key: event[key] for key in RECORD_KEYS}
