"""Narayana's transaction log is read by us, and a log that we wrote is read by Narayana."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

import tallystick
from tallystick.reading.discovery import discover
from tallystick.records import Answer, Kind, Record, State
from tallystick.systems.jboss.format.bodies import ObjectState, object_state, pack_object_state
from tallystick.systems.jboss.format.participants import TRANSACTION
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings
from tallystick.systems.jboss.reader import reading_of
from tallystick.systems.protocol import ReadOptions
from tests.interop.java import classpath, compile_java, run_java
from tests.systems.jboss.build import read

pytestmark = pytest.mark.interop
JARS = (
    "org.jboss.narayana.arjunacore:arjunacore:7.0.2.Final",
    "org.apache.activemq:artemis-journal:2.40.0",
    "org.jboss.logging:jboss-logging:3.6.0.Final",
    "org.jboss.narayana.jta:jta:7.0.2.Final",
    "org.jboss:jboss-transaction-spi:8.0.0.Final",
    "jakarta.transaction:jakarta.transaction-api:2.0.1",
    "jakarta.resource:jakarta.resource-api:2.1.0",
)
SETTINGS = JournalSettings(prefix="jbossts", extension="txlog", file_size=2 << 20, min_files=4)


@cache
def store() -> str:
    """The class path with the compiled program."""
    jars = classpath(JARS)
    return f"{compile_java(Path(__file__).parent / 'java' / 'narayana', jars)}:{jars}"


def states(output: str) -> dict[str, str]:
    """Uid -> text, as the program lists them."""
    lines = (line.split(" ", 2) for line in output.splitlines() if line.startswith("state "))
    return {uid: text for _, uid, text in lines}


def live_objects(folder: Path) -> dict[str, ObjectState]:
    """Uid -> the last state of each live object, by our reader."""
    engine = read(folder).verdict().engine
    found = [object_state(one["body"]) for one in engine["live_records"]]
    return {one.uid_text: one for one in found if one is not None}


def test_we_read_the_states_that_narayana_wrote(tmp_path: Path) -> None:
    listed = states(run_java("Store", "write", tmp_path, 40, classpath=store()))
    ours = live_objects(tmp_path)
    assert set(ours) == set(listed)
    assert len(ours) == 32
    assert {one.type_name for one in ours.values()} == {"Test/Kind"}
    for uid, text in listed.items():
        assert text.encode() in ours[uid].state
    rows: dict[str, Mapping[str, object]] = {}
    for change in read(tmp_path).changes_of("states"):
        if change.kind is Kind.DELETE:
            del rows[change.key]
        else:
            rows[change.key] = change.values or {}
    assert {(one["uid"], one["type"], one["state"]) for one in rows.values()} == {
        (uid, one.type_name, one.state.hex()) for uid, one in ours.items()
    }
    records: list[Record] = list(read(tmp_path).records())
    assert {"type": "Test/Kind", "uid": next(iter(listed))} in [
        record.attributes.get("object") for record in records
    ]


def test_narayana_reads_the_states_that_we_wrote(tmp_path: Path) -> None:
    listed = states(run_java("Store", "write", tmp_path, 10, classpath=store()))
    ours = live_objects(tmp_path)
    uid, model = next(iter(ours.items()))
    with CircularJournal(str(tmp_path), SETTINGS) as journal:
        live, _ = journal.contents()
        number = next(
            number
            for number, items in live.items()
            if (one := object_state(items[-1].body or b"")) and one.uid == model.uid
        )
        text = listed[uid].encode()
        changed = ObjectState(model.uid, model.type_name, model.state.replace(text, text[::-1]))
        journal.append_update_record(number, 0, pack_object_state(changed)).wait()
        gone = next(n for n in live if n != number)
        journal.append_delete_record(gone).wait()
    after = states(run_java("Store", "list", tmp_path, classpath=store()))
    assert after[uid] == listed[uid][::-1]
    assert len(after) == len(listed) - 1


def listed_files(output: str) -> set[tuple[str, str]]:
    """Type and Uid of what Narayana lists in a store of files."""
    lines = (line.split() for line in output.splitlines() if line.startswith("state "))
    return {("/" + one[1], one[2]) for one in lines}


def told(output: str) -> set[tuple[str, ...]]:
    """What branches are told in the second phase: verb, transaction, format id, gtrid, bqual."""
    lines = (tuple(line.split()) for line in output.splitlines())
    return {
        (one[0], one[1], *one[3:]) for one in lines if one[0] in ("commit", "rollback", "forget")
    }


STORES = (
    "ShadowNoFileLockStore",
    "ShadowingStore",
    "ActionStore",
    "HashedActionStore",
    "HashedStore",
)


@pytest.mark.parametrize("kind", STORES)
def test_a_store_of_files_has_what_narayana_lists_and_recovery_does_what_we_say(
    kind: str, tmp_path: Path
) -> None:
    work = ("both", "undone", "heuristic", "mixed", "failed", "halted")
    run_java("Files", "write", kind, tmp_path, *work, classpath=store())
    (log,) = discover(tmp_path).logs
    reading = reading_of(log, ReadOptions())
    assert {
        (record.type, record.attributes["uid"]) for record in reading.records()
    } == listed_files(run_java("Files", "list", kind, tmp_path, classpath=store()))
    found = list(reading.transactions())
    assert sorted(one.state for one in found) == [
        State.COMMITTING, State.COMMITTING, State.HEURISTIC,
    ]  # fmt: skip
    assert reading.verdict().judgement.answer is Answer.SAFE
    printed = run_java("Files", "recover", kind, tmp_path, classpath=store())
    finished = {one.gtrid.hex() for one in found if one.gtrid and one.state is State.COMMITTING}
    assert {(one[0], one[3]) for one in told(printed)} == {("commit", one) for one in finished}
    left = {one.key for one in found if one.state is State.HEURISTIC}
    assert {uid for name, uid in listed_files(printed) if name == TRANSACTION} == left
    (log,) = discover(tmp_path).logs
    assert {one.key for one in reading_of(log, ReadOptions()).transactions()} == left


@pytest.mark.parametrize("kind", STORES)
def test_a_store_whose_transactions_have_ended_has_none_left(kind: str, tmp_path: Path) -> None:
    """What is left is the state of the process that Narayana began to run."""
    run_java("Files", "write", kind, tmp_path, "both", "undone", classpath=store())
    for _ in range(2):
        (one,) = tallystick.explain(tmp_path).logs
        assert (one.judgement.answer, one.judgement.reason) == (Answer.SAFE, "no-state")
        shutil.rmtree(tmp_path / "Recovery", ignore_errors=True)
    printed = run_java("Files", "recover", kind, tmp_path, classpath=store())
    assert told(printed) == set()
    assert TRANSACTION not in {name for name, _ in listed_files(printed)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("end", "size", "reason"),
    [
        ("#", None, "state-passed-over"),
        ("!", None, "state-passed-over"),
        (" (1)", None, "state-passed-over"),
        ("", 0, "state-cut"),
        ("", 200, "state-cut"),
        ("", 8, "state-cut"),
    ],
)
def test_recovery_finishes_nothing_of_which_we_say_that_we_cannot_tell(
    end: str, size: int | None, reason: str, tmp_path: Path
) -> None:
    run_java("Files", "write", STORES[0], tmp_path, "failed", classpath=store())
    (path,) = (one for one in tmp_path.rglob("AtomicAction/*") if one.is_file())
    content = path.read_bytes()[:size]
    path.unlink()
    path.with_name(path.name + end).write_bytes(content)
    (one,) = tallystick.explain(tmp_path).logs
    assert one.judgement.reason == reason
    assert told(run_java("Files", "recover", STORES[0], tmp_path, classpath=store())) == set()


@pytest.mark.parametrize(
    ("kind", "end", "lock", "reason"),
    [
        ("ShadowingStore", "_lock", (1, 1), "state-passed-over"),
        ("ShadowingStore", "_lock", (), "state-passed-over"),
        ("ShadowingStore", "_lock.lock", (), "state-passed-over"),
        ("ShadowingStore", "_lock", (0, 1), "states-whole"),
        ("ShadowNoFileLockStore", "_lock", (1, 1), "states-whole"),
    ],
)
def test_recovery_finishes_a_locked_transaction_where_we_say_that_its_state_is_read(
    kind: str, end: str, lock: tuple[int, ...], reason: str, tmp_path: Path
) -> None:
    run_java("Files", "write", kind, tmp_path, "failed", classpath=store())
    (path,) = (one for one in tmp_path.rglob("AtomicAction/*") if one.is_file())
    path.with_name(path.name + end).write_bytes(struct.pack(f">{len(lock)}i", *lock))
    (one,) = tallystick.explain(tmp_path).logs
    assert one.judgement.reason == reason
    printed = run_java("Files", "recover", kind, tmp_path, classpath=store())
    assert bool(told(printed)) is (reason == "states-whole")


def test_we_read_the_participants_of_transactions_that_narayana_left(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    printed = run_java("Participants", folder, classpath=store(), cwd=tmp_path)
    branches = {
        (words[1], words[2]): words[3:]
        for line in printed.splitlines()
        if len(words := line.split()) == 6
    }
    rows: dict[str, Mapping[str, object]] = {}
    for change in read(folder).changes_of("participants"):
        rows.pop(change.key, None)
        if change.values is not None:
            rows[change.key] = change.values
    named = {tuple(xid): branch for branch, xid in branches.items()}
    found = {
        named[str(one["format_id"]), str(one["gtrid"]), str(one["bqual"])]: tuple(
            one[name]
            for name in ("status", "outcome", "heuristic", "committed", "jndi_name", "product_name")
        )
        for one in rows.values()
    }
    assert len(rows) == len(found)
    assert found == {
        ("heuristic", "second"): ("committed", "heuristic_rollback", True, False, None, None),
        ("failed", "second"): ("committed", "finish_ok", False, True, None, None),
        ("halted", "first"): ("committing", "finish_ok", False, False, "java:/first", "Product"),
        ("halted", "second"): ("committing", "finish_ok", False, False, None, None),
    }
    classes = {one["resource_class"] for one in rows.values()}
    assert classes == {None, "Participants$Plain"}


def _moved(folder: str) -> Callable[[Path, Path], object]:
    def move(root: Path, state: Path) -> None:
        to = root / folder / state.name
        to.parent.mkdir(parents=True, exist_ok=True)
        state.rename(to)

    return move


COORDINATORS = TRANSACTION.strip("/").rpartition("/")[0]
MOVES = {
    "a folder below": _moved(f"{TRANSACTION}/old".strip("/")),
    "the folder above": _moved(COORDINATORS),
    "another type": _moved(f"{COORDINATORS}/ArjunaTransactionImple"),
    "a type of no transaction": _moved("Recovery/TransactionStatusManager"),
    "a folder by hash": _moved(f"{TRANSACTION}/#999#".strip("/")),
    "no folder": _moved("."),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["ShadowNoFileLockStore", "HashedStore"])
@pytest.mark.parametrize("move", MOVES)
def test_recovery_finishes_no_state_in_another_folder_and_we_say_so(
    kind: str, move: str, tmp_path: Path
) -> None:
    run_java("Files", "write", kind, tmp_path, "failed", "halted", classpath=store())
    (root,) = {one.parent for one in tmp_path.rglob("StateManager")}
    states = sorted(one for one in root.rglob("AtomicAction/**/*") if one.is_file())
    MOVES[move](root, states[0])
    (log,) = discover(tmp_path).logs
    reading = reading_of(log, ReadOptions())
    judged = reading.verdict().judgement
    assert (judged.answer, judged.reason) == (Answer.CANNOT_TELL, "state-passed-over")
    (left,) = (one.gtrid.hex() for one in reading.transactions() if one.gtrid)
    printed = run_java("Files", "recover", kind, tmp_path, classpath=store())
    assert {one[3] for one in told(printed)} == {left}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", STORES)
def test_recovery_reads_no_zeros_after_a_state(kind: str, tmp_path: Path) -> None:
    run_java("Files", "write", kind, tmp_path, "failed", "halted", classpath=store())
    for one in tmp_path.rglob("AtomicAction/**/*_*"):
        one.write_bytes(one.read_bytes() + bytes(512))
    (log,) = discover(tmp_path).logs
    assert reading_of(log, ReadOptions()).verdict().judgement.answer is Answer.SAFE
    printed = run_java("Files", "recover", kind, tmp_path, classpath=store())
    assert {one[1] for one in told(printed)} == {"failed", "halted"}
