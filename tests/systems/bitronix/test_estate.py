"""The coordinators' journals of the sample bank, against what Bitronix itself read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tallystick.records import Clock, State
from tests.fixtures import cases, fixture_dir
from tests.systems.bitronix.logs import reading_of

ESTATE = fixture_dir("estate")
JOURNALS = [
    (case, folder.name)
    for case in cases("estate")
    for folder in sorted((ESTATE / case).glob("bit*"))
]


def _manifest(case: str) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((ESTATE / case / "manifest.json").read_text())
    return manifest


@pytest.mark.parametrize(("case", "name"), JOURNALS)
def test_open_decisions_and_file_in_use(case: str, name: str) -> None:
    real = _manifest(case)["real_systems"]["bitronix"][name]
    reading = reading_of(ESTATE / case / name)
    found = {
        one.gtrid: list(one.open_participants)
        for one in reading.transactions()
        if one.state is State.COMMITTING
    }
    assert found == {bytes.fromhex(one["gtrid"]): one["names"] for one in real["dangling"]}
    files = {Path(file.path).name.removesuffix(".gz"): file for file in reading.files()}
    assert files[real["file_in_use_as_opened_by_2.1.4"]].order == 1
    assert reading.clock is Clock.BOOT_MS


@pytest.mark.parametrize(("case", "name"), JOURNALS)
def test_every_record_is_there(case: str, name: str) -> None:
    headers = _manifest(case)["real_systems"]["bitronix"][name]["headers"]
    reading = reading_of(ESTATE / case / name)
    assert sum(1 for _ in reading.records()) == sum(one["records"] for one in headers.values())


@pytest.mark.parametrize("case", sorted({case for case, _ in JOURNALS}))
def test_transactions_are_those_of_the_application(case: str) -> None:
    folders = [folder for one, folder in JOURNALS if one == case]
    known = {
        one.gtrid: one
        for folder in folders
        for one in reading_of(ESTATE / case / folder).transactions()
    }
    for transfer in _manifest(case)["transfers"]:
        status = transfer.get("journal_last_status")
        if status is not None:
            one = known[bytes.fromhex(transfer["gtrid"])]
            assert one.attributes["lastStatus"] == status
            assert one.format_id == 0x42746E78
