"""The sample estates: real systems, halted at chosen points, and what they say of themselves.

All situations are read in one run: they share server ids and folder names, and must not
disturb each other.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures import cases, fixture_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SYSTEMS = {"bitronix": "bitronix", "derby": "derby", "h2": "h2", "artemis": "jboss"}
STATES = {
    "prepared": {"prepared"},
    "committed": {"committed"},
    "rolled back": {"rolled_back"},
    "active": {"active", "unknown"},
    "commit called": {"prepared", "committed"},
    "prepare called": {"active", "prepared", "unknown"},
}
"""What a log may show of what the caller saw last: an open call may have reached it."""

DECISIONS = {
    "COMMITTING": "commit",
    "COMMITTED": "commit",
    "ROLLING_BACK": "rollback",
    "ROLLEDBACK": "rollback",
}

Rows = dict[str, dict[bytes, Any]]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Rows:
    """Rows of ``global_transactions`` by situation and gtrid."""
    from tallystick.pipeline.stages import global_transactions

    root = fixture_dir("estate")
    source = spark.read.format("tallystick").option("table", "transactions").load(str(root))
    found: Rows = defaultdict(dict)
    by_gtrid = {
        bytes.fromhex(transfer["gtrid"]): name
        for name in cases("estate")
        for transfer in _manifest(name)["transfers"]
    }
    # The stage reads its table many times, as the runner lets it do from Parquet.
    for row in global_transactions(source.localCheckpoint()).collect():
        found[by_gtrid[bytes(row.gtrid)]][bytes(row.gtrid)] = row
    return found


def _manifest(case: str) -> Any:
    return json.loads((fixture_dir("estate") / case / "manifest.json").read_text())


@pytest.mark.parametrize("case", cases("estate"))
def test_every_branch_in_doubt_has_the_right_outcome(rows: Rows, case: str) -> None:
    expected = {
        (SYSTEMS[one["system"]], one["gtrid"], one["bqual"]): one["right_outcome"]
        for one in _manifest(case)["in_doubt"]
    }
    ours = {
        (branch.system, bytes(row.gtrid).hex(), bytes(branch.bqual).hex()): branch.due
        for row in rows[case].values()
        for branch in row.branches
        if branch.state == "prepared"
    }
    assert ours == expected


@pytest.mark.parametrize("case", cases("estate"))
def test_the_resolution_is_that_of_the_branches_in_doubt(rows: Rows, case: str) -> None:
    manifest = _manifest(case)
    half = {bytes.fromhex(one["gtrid"]) for one in manifest["money"]["transfers_half_done"]}
    due = {bytes.fromhex(one["gtrid"]): one["right_outcome"] for one in manifest["in_doubt"]}
    for gtrid, row in rows[case].items():
        if gtrid in half and row.alarm == "heuristic-mismatch":
            assert row.resolution == "heuristic_mismatch"
        else:
            assert row.resolution == due.get(gtrid, "none"), row.evidence


@pytest.mark.parametrize("case", cases("estate"))
def test_every_half_done_transfer_raises_an_alarm(rows: Rows, case: str) -> None:
    half = {bytes.fromhex(one["gtrid"]) for one in _manifest(case)["money"]["transfers_half_done"]}
    alarms = {"lost-commit", "heuristic-mismatch"}
    assert {gtrid for gtrid, row in rows[case].items() if row.alarm in alarms} == half


@pytest.mark.parametrize("case", cases("estate"))
def test_every_transfer_has_its_decision_and_its_coordinator(rows: Rows, case: str) -> None:
    manifest = _manifest(case)
    here = {one["server_id"]: one["folder"] for one in manifest["coordinators"] if one["in_estate"]}
    for transfer in manifest["transfers"]:
        row = rows[case].get(bytes.fromhex(transfer["gtrid"]))
        status = transfer["journal_last_status"]
        if row is None:
            assert status is None
            continue
        folder = here.get(transfer["server_id"])
        assert (row.coordinator and Path(row.coordinator).name) == folder
        expected = None if status is None else DECISIONS.get(status, "undecided")
        assert row.decision == expected, transfer


@pytest.mark.parametrize("case", cases("estate"))
def test_every_named_branch_has_the_state_it_stood_in(rows: Rows, case: str) -> None:
    manifest = _manifest(case)
    in_doubt = {one["bqual"] for one in manifest["in_doubt"]}
    for transfer in manifest["transfers"]:
        row = rows[case].get(bytes.fromhex(transfer["gtrid"]))
        ours = {bytes(one.bqual).hex(): one for one in row.branches if one.bqual} if row else {}
        for branch in transfer["branches"]:
            if (one := ours.get(branch["bqual"])) is None:
                continue  # a branch that ended before prepare, or changed nothing, has no name
            state = branch.get("state_at_end") or branch["state_at_halt"]
            # What was confirmed to the caller may be lost: the log of the resource knows.
            state = "prepared" if branch["bqual"] in in_doubt else state
            assert one.system == SYSTEMS[branch["system"]]
            assert one.state in STATES[state], (transfer, one)
            assert one.resource in (branch["resource"], None)


WITHOUT = ("mid-phase-two", "presumed-abort")
"""Situations whose coordinator is left out; others of the same name stay."""


def test_a_coordinator_elsewhere_with_the_same_name_does_not_answer(
    spark: SparkSession, tmp_path: Path
) -> None:
    from tallystick.pipeline.stages import global_transactions

    for case in ("clean", "committed-record-missing", *WITHOUT):
        shutil.copytree(fixture_dir("estate") / case, tmp_path / case)
    for case in WITHOUT:
        shutil.rmtree(tmp_path / case / "bitronix")
    source = spark.read.format("tallystick").option("table", "transactions").load(str(tmp_path))
    due = {
        bytes(branch.bqual).hex(): (row.resolution, branch.due)
        for row in global_transactions(source.localCheckpoint()).collect()
        for branch in row.branches
        if branch.state == "prepared"
    }
    expected = {one["bqual"] for case in WITHOUT for one in _manifest(case)["in_doubt"]}
    assert due == dict.fromkeys(expected, ("foreign", "foreign"))


def test_a_branch_rolled_back_by_hand_is_found_without_its_name(rows: Rows) -> None:
    (row,) = (one for one in rows["heuristic-h2-rolled-back"].values() if one.alarm)
    states = {one.resource: one.state for one in row.branches}
    assert states["jdbc/branch-b"] == "rolled_back"
    assert "ROLLBACK in " in row.evidence


def test_the_evidence_names_the_record_of_the_decision(rows: Rows) -> None:
    row = rows["mid-phase-two"][bytes.fromhex("62616e6b2d3100000000004e6e4900000053")]
    assert "COMMITTING in " in row.evidence
    assert "part1.tlog.gz offset 10028" in row.evidence
