"""The transactions that Narayana keeps in its journal are those of a coordinator."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import tallystick
from tallystick.arrow.schemas import batches_of_transactions
from tallystick.cli import tallystick as command
from tallystick.records import Answer, State
from tallystick.systems.jboss.applications.coordinated import state_of
from tallystick.systems.jboss.format.participants import (
    SUBORDINATE,
    TRANSACTION,
    Participant,
    Participants,
)
from tests.fixtures import fixture_dir
from tests.systems.jboss.build import read

STORE = fixture_dir("brokers") / "narayana"
"""Of Narayana 7.0.2: a heuristic, a failed and a halted transaction; its own listing has these."""
LISTED = {
    "0:ffff7f000001:a661:6b070de7:9": State.HEURISTIC,
    "0:ffff7f000001:a661:6b070de7:10": State.COMMITTING,
    "0:ffff7f000001:a661:6b070de7:17": State.COMMITTING,
}


def test_they_are_those_that_narayana_lists() -> None:
    found = {one.key: one for one in read(STORE / "tx-object-store").transactions()}
    assert {key: one.state for key, one in found.items()} == LISTED
    halted = found["0:ffff7f000001:a661:6b070de7:17"]
    assert halted.participants == ("java:/first", "Participants$Plain")
    assert halted.format_id == 0x20005
    assert halted.gtrid is not None
    assert halted.gtrid.endswith(b"node")
    heuristic = found["0:ffff7f000001:a661:6b070de7:9"]
    assert (heuristic.participants, heuristic.open_participants) == (("Participants$Plain",), ())


@pytest.mark.parametrize("offset", [0, 43])
def test_a_state_that_cannot_be_read_leaves_no_journal_safe(offset: int, tmp_path: Path) -> None:
    """Another mark, or the Uid of another transaction: no checksum of the journal covers them."""
    path = Path(shutil.copytree(STORE / "tx-object-store", tmp_path / "store"))
    for one in path.iterdir():
        content = bytearray(one.read_bytes())
        if (at := content.rfind(b"#ARJUNA#")) >= 0:
            content[at + offset] ^= 1
            one.write_bytes(content)
    (log,) = tallystick.explain(path).logs
    assert (log.judgement.answer, log.judgement.reason) == (Answer.CANNOT_TELL, "state-cut")
    assert log.judgement.at_stake.transactions == 1


def test_they_are_the_same_as_batches() -> None:
    reading = read(STORE / "tx-object-store")
    (made,) = reading.transaction_batches(10)
    (expected,) = batches_of_transactions(reading.transactions(), "none", 10)
    assert made.equals(expected)
    closed = [batch for name, batch in reading.close_rests([], 10) if name == "transactions"]
    assert [batch for batch in closed if batch.num_rows] == [expected]


def test_a_restart_finishes_two_and_leaves_one_to_an_operator() -> None:
    (one,) = tallystick.explain(STORE).logs
    assert one.strict["transactions"] == {"committing": 2, "heuristic": 1}
    text = CliRunner().invoke(command, ["explain", str(STORE)]).output
    assert "finish committing 2 transactions, leave 1 to an operator" in text
    listed = CliRunner().invoke(command, ["indoubt", "list", str(STORE)])
    assert listed.exit_code == 1
    assert "heuristic mismatch" in listed.output
    assert "java:/first" in listed.output
    assert "Nothing is in doubt" not in listed.output


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("prepared", State.COMMITTING),
        ("committing", State.COMMITTING),
        ("committed", State.COMMITTING),
        ("aborting", State.ROLLING_BACK),
        ("heuristic_rollback", State.ROLLING_BACK),
        (None, State.COMMITTING),
    ],
)
def test_recovery_commits_what_is_decided_and_rolls_back_what_is_aborted(
    status: str | None, state: State
) -> None:
    """As RecoverAtomicAction does by the status."""
    assert state_of(Participants((Participant(171, heuristic=False),), status)) is state
    assert state_of(Participants((Participant(171, heuristic=True),), status)) is State.HEURISTIC
    assert state_of(None) is State.UNDECIDED
    assert state_of(Participants((), None, complete=False)) is State.UNDECIDED


def test_a_transaction_that_another_coordinator_began_is_in_doubt_until_that_decides() -> None:
    prepared = Participants((), "prepared")
    assert state_of(prepared, TRANSACTION + SUBORDINATE) is State.PREPARED
    assert state_of(prepared, TRANSACTION) is State.COMMITTING
