"""Narayana's stores of files: found by what is in them, and read as its recovery reads them."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

import tallystick
from tallystick.arrow.schemas import batches_of_transactions
from tallystick.cli import tallystick as command
from tallystick.reading.discovery import discover
from tallystick.records import Answer, Fate, Kind, Outcome, State
from tallystick.systems.jboss.applications.object_store import ObjectStoreReading
from tallystick.systems.jboss.format.bodies import PACKED_MAGIC
from tallystick.systems.jboss.reader import reading_of
from tallystick.systems.protocol import ReadOptions
from tests.systems.jboss.format.test_participants import (
    ROLLED_BACK,
    UID,
    XID,
    branch,
    number,
    state,
)

ACTION = "StateManager/BasicAction/TwoPhaseCoordinator/AtomicAction"
DECIDED = state(branch() + branch(stored_object=b""))
HEURISTIC = state(b"", branch(ROLLED_BACK)).replace(XID.gtrid, XID.gtrid[::-1])
CANNOT_TELL = (Answer.CANNOT_TELL, "state-passed-over")
NAMES = {"9": HEURISTIC, "17": DECIDED, "a0": DECIDED}


def uid(last: str) -> str:
    return f"0_ffff7f000001_a661_6b070de7_{last}"


def put(root: Path, last: str, content: bytes, place: str = ACTION) -> Path:
    path = root / place / uid(last)
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = (int(one, 16) for one in uid(last.rstrip("#!")).split("_"))
    path.write_bytes(content.replace(UID, struct.pack(">qqiii", *numbers)))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a heuristic and two decided transactions."""
    root = tmp_path / "tx-object-store" / "ShadowNoFileLockStore" / "defaultStore"
    for last, content in NAMES.items():
        put(root, last, content)
    put(root, "0", PACKED_MAGIC + number(10) + b"127.0.0.1\0", "Recovery/TransactionStatusManager")
    return root


def reading(root: Path) -> ObjectStoreReading:
    (source,) = discover(root).logs
    found = reading_of(source, ReadOptions())
    assert isinstance(found, ObjectStoreReading)
    return found


def judged(root: Path) -> tuple[Answer, str]:
    (one,) = tallystick.explain(root).logs
    return one.judgement.answer, one.judgement.reason


def test_the_whole_store_is_one_log_wherever_its_tree_is_entered(store: Path) -> None:
    for place in (store, store.parents[1], store / "StateManager", store / ACTION):
        (one,) = discover(place).logs
        assert one.path == str(store)
        assert {str(store / ACTION / uid(last)) for last in NAMES} <= set(one.files)
    (one,) = discover(store / ACTION / uid("9")).logs
    assert one.path == str(store)


def test_its_transactions_are_those_that_recovery_reads(store: Path) -> None:
    put(store, "b!", DECIDED)
    put(store, "c#", DECIDED)
    found = {one.key.rpartition(":")[2]: one for one in reading(store).transactions()}
    assert {last: one.state for last, one in found.items()} == {
        "9": State.HEURISTIC, "17": State.COMMITTING, "a0": State.COMMITTING,
    }  # fmt: skip
    assert found["17"].participants == ("java:/db", "java:/db")
    assert found["17"].first_time == 0
    (batch,) = reading(store).transaction_batches(10)
    (expected,) = batches_of_transactions(reading(store).transactions(), "wall_ms", 10)
    assert batch.equals(expected)


def test_a_hashed_store_is_one_log_too(tmp_path: Path) -> None:
    put(tmp_path, "1", DECIDED, f"{ACTION}/#7#")
    put(tmp_path, "2", DECIDED, f"{ACTION}/#143#")
    (one,) = discover(tmp_path).logs
    assert (one.path, len(one.files)) == (str(tmp_path), 2)
    assert sum(1 for _ in reading(tmp_path).transactions()) == 2


def test_a_folder_that_merely_has_the_names_is_no_store(tmp_path: Path) -> None:
    for place in (ACTION, "tx-object-store", "ShadowNoFileLockStore/defaultStore"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "notes.txt").write_bytes(DECIDED)
    put(tmp_path, "1", b"text", "somewhere")
    assert discover(tmp_path).logs == []


@pytest.mark.parametrize("place", [ACTION, f"{ACTION}/#7#", f"{ACTION}/Expired"])
def test_a_store_without_a_transaction_is_safe(place: str, tmp_path: Path) -> None:
    (tmp_path / place).mkdir(parents=True)
    (one,) = discover(tmp_path).logs
    assert (one.path, one.files) == (str(tmp_path), ())
    assert judged(tmp_path) == (Answer.SAFE, "no-state")
    text = CliRunner().invoke(command, ["explain", str(tmp_path)]).output
    assert "A restart would find no transaction" in text
    put(tmp_path, "1", DECIDED, f"{ACTION}/#8#")
    (one,) = discover(tmp_path).logs
    assert len(one.files) == 1


def test_a_state_outside_of_any_store_is_known_by_its_bytes(tmp_path: Path) -> None:
    put(tmp_path, "1", DECIDED, "copies")
    (one,) = discover(tmp_path).logs
    assert one.path == str(tmp_path / "copies")


def test_a_restart_finishes_two_and_leaves_one_to_an_operator(store: Path) -> None:
    assert judged(store) == (Answer.SAFE, "states-whole")
    text = CliRunner().invoke(command, ["explain", str(store)]).output
    assert "finish committing 2 transactions, leave 1 to an operator" in text
    listed = CliRunner().invoke(command, ["indoubt", "list", str(store)])
    assert listed.exit_code == 1
    assert "heuristic mismatch" in listed.output
    assert "java:/db" in listed.output
    rows = list(reading(store).fated_changes())
    assert [row.fate for row in rows].count(Fate.COMMITTED) == 4


@pytest.mark.parametrize("content", [b"", DECIDED[:100], bytes(len(DECIDED)), DECIDED + b"x"])
def test_a_state_that_is_cut_or_damaged_leaves_no_store_safe(content: bytes, store: Path) -> None:
    path = put(store, "17", content)
    assert judged(store) == (Answer.CANNOT_TELL, "state-cut")
    (finding,) = (one for one in reading(store).findings() if one.code == "state-cut")
    assert finding.file == str(path)


def test_a_state_of_another_transaction_is_not_read(store: Path) -> None:
    """Narayana finishes the other one twice, and this one never."""
    shutil.copy(store / ACTION / uid("a0"), store / ACTION / uid("17"))
    assert judged(store) == (Answer.CANNOT_TELL, "state-cut")


@pytest.mark.parametrize("end", ["#", "!", "!#"])
def test_what_recovery_passes_over_is_said(end: str, store: Path) -> None:
    path = put(store, f"17{end}", DECIDED)
    assert judged(store) == (Answer.CANNOT_TELL, "state-passed-over")
    records = {one.file: one for one in reading(store).records(salvage=True)}
    assert records[str(path)].outcome is Outcome.STALE
    assert str(path) not in {one.file for one in reading(store).records()}


@pytest.mark.parametrize("place", ["ShadowingStore/defaultStore", "moved"])
@pytest.mark.parametrize(
    ("end", "lock", "is_read"),
    [
        ("_lock", struct.pack(">ii", 1, 1), False),
        ("_lock", b"", False),
        ("_lock.lock", b"", False),
        ("_lock", struct.pack(">ii", 0, 1), True),
        ("!_lock", struct.pack(">ii", 1, 1), True),
    ],
)
def test_no_recovery_reads_a_state_whose_lock_a_kill_has_left(
    place: str, end: str, lock: bytes, is_read: bool, tmp_path: Path
) -> None:
    put(tmp_path / place, "17", DECIDED)
    path = put(tmp_path / place, "a0", DECIDED)
    path.with_name(path.name + end).write_bytes(lock)
    expected = (Answer.SAFE, "states-whole") if is_read else CANNOT_TELL
    assert judged(tmp_path) == expected
    assert sum(1 for _ in reading(tmp_path).transactions()) == 1 + is_read


def test_a_store_without_locks_looks_at_none(store: Path) -> None:
    path = store / ACTION / uid("17")
    path.with_name(f"{path.name}_lock").write_bytes(struct.pack(">ii", 1, 1))
    assert judged(store) == (Answer.SAFE, "states-whole")


@pytest.mark.parametrize("end", [" (1)", " - Copy", ".txt", "~"])
def test_a_state_under_another_name_is_passed_over_unless_it_is_a_copy(
    end: str, store: Path
) -> None:
    (store / ACTION / f"{uid('17')}{end}").write_bytes((store / ACTION / uid("17")).read_bytes())
    (store / ACTION / f"._{uid('17')}").write_bytes(b"\0\5\x16\7")
    assert judged(store) == (Answer.SAFE, "states-whole")
    (store / ACTION / uid("17")).unlink()
    assert judged(store) == (Answer.CANNOT_TELL, "state-passed-over")
    (finding,) = reading(store).findings()
    assert finding.file == str(store / ACTION / f"{uid('17')}{end}")


def test_a_state_in_folders_of_another_case_is_passed_over(store: Path) -> None:
    """As a file system leaves them that does not tell large letters from small ones."""
    (store / ACTION).rename((store / ACTION).with_name("ATOMICACTION"))
    assert judged(store) == (Answer.CANNOT_TELL, "state-passed-over")
    assert (
        "would find no transaction" in CliRunner().invoke(command, ["explain", str(store)]).output
    )


COORDINATORS = ACTION.rpartition("/")[0]


@pytest.mark.parametrize(
    "place",
    [
        f"{ACTION}/old",
        f"{ACTION}/2024/05",
        f"{ACTION}/#5#",
        COORDINATORS,
        f"{COORDINATORS}/ArjunaTransactionImple",
        f"{COORDINATORS}/Other",
        "StateManager/AbstractRecord",
        "Recovery/TransactionStatusManager",
        "EISNAME",
        ".",
    ],
)
def test_a_state_in_another_folder_than_that_of_its_type_is_passed_over(
    place: str, store: Path
) -> None:
    """Narayana 7.0.2 lists some of these as objects of other types, and finishes none."""
    put(store, "17", DECIDED, place)
    assert judged(store) == (Answer.SAFE, "states-whole")  # a copy: recovery finishes its own one
    (store / ACTION / uid("17")).unlink()
    assert judged(store) == (Answer.CANNOT_TELL, "state-passed-over")
    (finding,) = reading(store).findings()
    assert finding.file == str((store / place / uid("17")).resolve())
    keys = {one.key.rpartition(":")[2] for one in reading(store).transactions()}
    assert keys == {"9", "a0"}


HASHED_AT = {"17": 87, "a0": 237}
"""The folders that Narayana gives to these states in a store by hash."""


@pytest.mark.parametrize("place", ["#88#", ".", "#87#/#5#"])
def test_a_state_in_another_folder_than_that_of_its_hash_is_passed_over(
    place: str, tmp_path: Path
) -> None:
    """Narayana 7.0.2 lists the one in another folder by hash, and asks for it in its own."""
    for last, folder in HASHED_AT.items():
        put(tmp_path, last, DECIDED, f"{ACTION}/#{folder}#")
    assert judged(tmp_path) == (Answer.SAFE, "states-whole")
    (tmp_path / ACTION / "#87#" / uid("17")).unlink()
    put(tmp_path, "1f", HEURISTIC, f"{ACTION}/#999#")  # passed over, too
    put(tmp_path, "17", DECIDED, f"{ACTION}/{place}")
    assert judged(tmp_path) == (Answer.CANNOT_TELL, "state-passed-over")
    assert [one.key.rpartition(":")[2] for one in reading(tmp_path).transactions()] == ["a0"]


def test_with_another_number_of_folders_a_hash_tells_nothing(tmp_path: Path) -> None:
    """It is a setting; so where no object is where it should be, all are as they are."""
    for last in HASHED_AT:
        put(tmp_path, last, DECIDED, f"{ACTION}/#1#")
    assert judged(tmp_path) == (Answer.SAFE, "states-whole")


@pytest.mark.parametrize("states", [["#87#"], ["#87#", "#87#/old"], ["#87#/old"]])
def test_a_store_by_hash_is_not_recovered_past_a_folder(states: list[str], tmp_path: Path) -> None:
    for place in states:
        put(tmp_path, "17", DECIDED, f"{ACTION}/{place}")
    (tmp_path / ACTION / "#87#" / "old").mkdir(exist_ok=True)
    assert judged(tmp_path) == (Answer.REFUSES, "recovery-ends")


@pytest.mark.parametrize("size", [1, 4, 512, 4096])
def test_recovery_reads_no_zeros_after_a_state(size: int, store: Path) -> None:
    put(store, "17", DECIDED + bytes(size))
    assert judged(store) == (Answer.SAFE, "states-whole")
    assert sum(1 for _ in reading(store).transactions()) == 3


def test_a_store_by_hash_is_not_recovered_past_a_foreign_file(tmp_path: Path) -> None:
    put(tmp_path, "1", DECIDED, f"{ACTION}/#7#")
    put(tmp_path, "2", DECIDED, f"{ACTION}/#143#")
    foreign = tmp_path / ACTION / "#143#" / ".DS_Store"
    foreign.write_bytes(b"\0\0\0\1Bud1")
    (one,) = tallystick.explain(tmp_path).logs
    assert (one.judgement.answer, one.judgement.reason) == (Answer.REFUSES, "recovery-ends")
    assert one.judgement.at_stake.transactions == 2
    assert [one.file for one in reading(tmp_path).findings()] == [str(foreign)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (DECIDED, (Answer.CANNOT_TELL, "state-expired")),
        (b"", (Answer.CANNOT_TELL, "state-expired")),
        (HEURISTIC, (Answer.SAFE, "states-whole")),
    ],
)
def test_recovery_never_finishes_what_it_has_given_up(
    content: bytes, expected: tuple[Answer, str], store: Path
) -> None:
    """What an operator has to settle is no worse off there."""
    put(store, "21", content, f"{ACTION}/Expired")
    assert judged(store) == expected
    assert [one.code for one in reading(store).findings()] == ["state-expired"]


def test_records_name_what_each_state_is(store: Path) -> None:
    kinds = [one.kind for one in reading(store).records()]
    assert sorted(kinds) == [Kind.CONTROL, Kind.DECISION, Kind.DECISION, Kind.HEURISTIC]
    (batch,) = reading(store).batches()
    assert batch.num_rows == len(kinds)
    parts = [reading(store).batches(one) for one in reading(store).splits(1)]
    assert sum(batch.num_rows for part in parts for batch in part) == len(kinds)
    for file in reading(store).files():
        assert sum(span.length for span in file.spans) == file.size


def test_a_transaction_that_ends_while_the_store_is_read_is_none(store: Path) -> None:
    found = reading(store)
    (store / ACTION / uid("17")).unlink()
    assert sum(1 for _ in found.transactions()) == 2
    assert found.findings() == []


def test_a_file_that_cannot_be_read_decides_alone(store: Path) -> None:
    found = reading(store)
    (store / ACTION / uid("17")).unlink()
    (store / ACTION / uid("17")).mkdir()
    assert found.judgement.reason == "unreadable"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (f"{ACTION}/{uid('17')}", "unreadable"),
        (ACTION, "unreadable"),
        ("StateManager", "unreadable"),
        ("StateManager/notes", "no-state"),
        ("notes", "no-state"),
    ],
)
def test_a_store_with_a_link_to_nothing_where_states_may_lie_is_not_safe(
    place: str, reason: str, tmp_path: Path
) -> None:
    """Recovery passes over it, and what it led to may be a decision."""
    put(tmp_path, "0", PACKED_MAGIC + number(10), "Recovery/TransactionStatusManager")
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).symlink_to("gone")
    assert judged(tmp_path)[1] == reason


@pytest.mark.parametrize("place", [ACTION, "StateManager/BasicAction", "StateManager"])
def test_a_folder_of_a_store_that_is_a_link_is_read_through_it(store: Path, place: str) -> None:
    """Recovery follows it. None of its decisions was seen, and that was called safe."""
    whole = {one.key for one in reading(store).transactions()}
    (store / place).rename(store.parents[2] / "other-disk")
    (store / place).symlink_to(store.parents[2] / "other-disk")
    assert {one.key for one in reading(store).transactions()} == whole


def test_a_folder_by_hash_that_is_a_link_is_read_through_it(tmp_path: Path) -> None:
    put(tmp_path / "store", "1", DECIDED, f"{ACTION}/#7#")
    put(tmp_path / "store", "2", DECIDED, f"{ACTION}/#143#")
    (tmp_path / "store" / ACTION / "#7#").rename(tmp_path / "other-disk")
    (tmp_path / "store" / ACTION / "#7#").symlink_to(tmp_path / "other-disk")
    assert sum(1 for _ in reading(tmp_path / "store").transactions()) == 2


def test_a_link_that_is_not_followed_leaves_no_store_safe(store: Path) -> None:
    """The folder of a type that is not known by its name may be that of transactions."""
    (store.parents[2] / "other-disk").mkdir()
    (store / ACTION).with_name("Other").symlink_to(store.parents[2] / "other-disk")
    assert judged(store) == (Answer.CANNOT_TELL, "unreadable")
    (store / "Recovery" / "notes").symlink_to(store.parents[2] / "other-disk")
    (store / ACTION).with_name("Other").unlink()
    assert judged(store)[0] is Answer.SAFE


def test_a_stream_has_nothing_to_follow_in_a_store(store: Path) -> None:
    found = reading(store)
    assert {found.number(path) for path in found.source.files} == {None}
    assert found.lives() == {}
    assert list(found.changes_between(None, 0)) == []
