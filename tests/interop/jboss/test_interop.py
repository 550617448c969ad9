"""The real Artemis and HornetQ journals open what we wrote, and we open what they wrote."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tallystick import Journal
from tallystick.convert import convert
from tallystick.records import Xid
from tallystick.systems.jboss.live.files import Ring
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings
from tests.interop.jboss.original import Loaded, RealJournal, real_journal
from tests.systems.jboss.build import read
from tests.systems.jboss.live.test_vectors import operate

pytestmark = pytest.mark.interop
FILE_SIZE = 8192
SETTINGS = {
    "artemis": JournalSettings(file_size=FILE_SIZE),
    "hornetq": JournalSettings(file_size=FILE_SIZE),
    "hornetq-2.1": JournalSettings(generation="g2", file_size=FILE_SIZE),
    "hornetq-2.0": JournalSettings(generation="g1d", file_size=FILE_SIZE),
}
BOTH = pytest.mark.parametrize("name", ["artemis", "hornetq"])
EVERY = pytest.mark.parametrize("name", list(SETTINGS))
WRITERS = pytest.mark.parametrize("name", ["artemis", "hornetq", "hornetq-2.1"])
"""HornetQ 2.0 loads here, but does not write with any later version of its buffer library."""


def ours(folder: Path) -> Loaded:
    """What our reader says that the original's loader would report."""
    engine = read(folder).verdict().engine
    assert engine["loaded"], engine
    return report(engine)


def report(engine: Mapping[str, Any]) -> Loaded:
    """An engine's verdict in the words of the original's driver."""
    return Loaded(
        [
            (one["id"], one["userRecordType"], one["isUpdate"], one["body"].hex() or "-")
            for one in engine["live_records"]
        ],
        [
            (
                one["txId"],
                one["extraData"].hex() or "-",
                len(one["records"]),
                len(one["recordsToDelete"]),
            )
            for one in engine["prepared_transactions"]
        ],
        [one["txId"] for one in engine["failed_transactions"]],
        engine["max_id"],
    )


def theirs(name: str, folder: Path) -> Loaded:
    """What the original reports; it is stopped again."""
    with real_journal(name, folder, file_size=FILE_SIZE) as journal:
        loaded = journal.load()
        journal.tell("stop")
    loaded.nanoseconds = 0
    return loaded


class Work:
    """Random operations, the same for both, that never do what the journal refuses."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.number = 0
        self.live: list[int] = []
        self.open: dict[int, tuple[list[int], list[int]]] = {}

    def line(self) -> str:
        """The next operation."""
        choices: list[Callable[[], str]] = [self.add, self.add, self.add_tx, self.add_tx]
        if self.live:
            choices += [self.update, self.delete]
        if self.open:
            choices += [self.end, self.end]
        return self.rng.choice(choices)()

    def body(self) -> str:
        return self.rng.randbytes(self.rng.randrange(400)).hex() or "-"

    def fresh(self) -> int:
        self.number += 1
        return self.number

    def add(self) -> str:
        number = self.fresh()
        self.live.append(number)
        return f"add {number} {self.rng.randrange(-128, 128)} {self.body()}"

    def update(self) -> str:
        return f"update {self.rng.choice(self.live)} {self.rng.randrange(5)} {self.body()}"

    def delete(self) -> str:
        return f"delete {self.live.pop(self.rng.randrange(len(self.live)))}"

    def add_tx(self) -> str:
        transaction = self.rng.choice([*self.open, self.fresh()])
        added, deleted = self.open.setdefault(transaction, ([], []))
        if self.live and self.rng.random() < 0.3:
            deleted.append(self.live.pop(self.rng.randrange(len(self.live))))
            return f"deletetx {transaction} {deleted[-1]}"
        added.append(self.fresh())
        return f"addtx {transaction} {added[-1]} 1 {self.body()}"

    def end(self) -> str:
        transaction = self.rng.choice(list(self.open))
        added, deleted = self.open.pop(transaction)
        if self.rng.random() < 0.3:
            self.live += deleted
            return f"rollback {transaction}"
        self.live += added
        return f"commit {transaction}"

    def forget_open(self) -> None:
        """What a restart does to transactions that did not end."""
        for _, deleted in self.open.values():
            self.live += deleted
        self.open.clear()


def play_ours(journal: CircularJournal, lines: list[str]) -> None:
    for line in lines:
        word, *rest = line.split()
        operate(journal, word, rest)


def play_theirs(journal: RealJournal, lines: list[str]) -> None:
    for line in lines:
        journal.tell(line)


@EVERY
def test_original_opens_what_we_closed(name: str, tmp_path: Path) -> None:
    work = Work(1)
    with CircularJournal(str(tmp_path), SETTINGS[name]) as journal:
        play_ours(journal, [work.line() for _ in range(400)])
        journal.append_add_record_transactional(90001, 90002, 3, b"in doubt")
        journal.append_prepare_record(90001, b"xid").wait()
    expected = ours(tmp_path)
    assert expected.prepared == [(90001, b"xid".hex(), 1, 0)]
    found = theirs(name, tmp_path)
    assert found == expected


@BOTH
def test_original_opens_what_was_converted_and_goes_on(name: str, tmp_path: Path) -> None:
    with Journal(tmp_path / "from") as journal:
        for number in range(200):
            journal.add(number, b"body %d" % number, number % 100)
            if number % 3 == 0:
                journal.update(number, b"update %d" % number, 7)
            if number % 5 == 0:
                journal.delete(number)
        with journal.transaction() as tx:
            tx.add(1000, b"in doubt")
            tx.delete(1)
            tx.prepare(xid=Xid(7, b"gtrid", b"bqual"))
        live = [
            (one.record_id, one.user_type, one.update, one.body.hex())
            for one in journal.live_records()
        ]
    convert(tmp_path / "from", tmp_path / "to", "jboss")
    expected = ours(tmp_path / "to")
    assert expected.live == live
    assert [one[2:] for one in expected.prepared] == [(1, 1)]
    with real_journal(name, tmp_path / "to") as original:
        found = original.load()
        found.nanoseconds = 0
        assert found == expected
        original.tell("add 2000 3 aa")
        original.tell("stop")
    convert(tmp_path / "to", tmp_path / "back", "tally")
    with Journal(tmp_path / "back") as journal:
        assert [one.record_id for one in journal.live_records()] == [
            *(one[0] for one in live),
            2000,
        ]
        (prepared,) = journal.prepared()
        assert prepared.xid == Xid(7, b"gtrid", b"bqual")


@EVERY
def test_original_opens_what_we_left_when_killed(name: str, tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        journal = CircularJournal(str(tmp_path), SETTINGS[name])
        work = Work(2)
        while True:
            play_ours(journal, [work.line()])
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG)
    while sum(1 for _ in tmp_path.glob("*.amq")) < 4:
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    expected = ours(tmp_path)
    assert len(expected.live) > 10
    assert theirs(name, tmp_path) == expected


@WRITERS
def test_we_open_what_the_original_wrote(name: str, tmp_path: Path) -> None:
    work = Work(3)
    with real_journal(name, tmp_path, file_size=FILE_SIZE) as real:
        real.load()
        play_theirs(real, [work.line() for _ in range(400)])
        real.tell("addtx 90001 90002 3 696e20646f756274")
        real.tell("prepare 90001 786964")
        real.kill()
    expected = ours(tmp_path)
    with CircularJournal(str(tmp_path), SETTINGS[name]) as journal:
        live, prepared = journal.contents()
        assert sorted(live) == sorted({one[0] for one in expected.live})
        assert [one.transaction for one in prepared] == [90001]
        journal.append_commit_record(90001).wait()
    assert 90002 in {one[0] for one in theirs(name, tmp_path).live}


@WRITERS
def test_rounds_of_original_and_ours_lose_nothing(name: str, tmp_path: Path) -> None:
    work = Work(4)
    for number in range(6):
        lines = [work.line() for _ in range(120)]
        if number % 2:
            with CircularJournal(str(tmp_path), SETTINGS[name]) as journal:
                play_ours(journal, lines)
                if number == 3:
                    journal.compact()
        else:
            with real_journal(name, tmp_path, file_size=FILE_SIZE) as real:
                real.load()
                play_theirs(real, lines)
                if number == 2:
                    real.tell("compact")
                real.tell("stop" if number else "next")
        work.forget_open()
        expected = ours(tmp_path)  # the original's load appends rollbacks
        assert {one[0] for one in expected.live} == set(work.live)
        assert theirs(name, tmp_path) == expected


@EVERY
def test_original_opens_what_we_compacted(name: str, tmp_path: Path) -> None:
    with CircularJournal(str(tmp_path), SETTINGS[name]) as journal:
        for number in range(200):
            journal.append_add_record(number, 1, bytes(200))
        for number in range(200):
            if number % 4:
                journal.append_delete_record(number)
        journal.append_add_record_transactional(7, 1000, 1, b"in doubt")
        journal.append_prepare_record(7, b"xid").wait()
        journal.compact()
        journal.append_add_record(2000, 1, b"behind").wait()
    expected = [*range(0, 200, 4), 2000]
    found = theirs(name, tmp_path)
    assert [one[0] for one in found.live] == expected
    assert found.prepared == [(7, b"xid".hex(), 1, 0)]


@BOTH
def test_original_refuses_the_hash_format(name: str, tmp_path: Path) -> None:
    settings = JournalSettings(file_size=FILE_SIZE, checksum="hash")
    with CircularJournal(str(tmp_path), settings) as journal:
        journal.append_add_record(1, 1, b"body").wait()
    with (
        real_journal(name, tmp_path, file_size=FILE_SIZE) as real,
        pytest.raises(AssertionError, match="version mismatch"),
    ):
        real.load()


@BOTH  # before 2.2 a free file keeps its id: nothing tells that it was reclaimed
def test_original_reclaims_the_files_that_we_call_redundant(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ring, "reclaim", lambda *_: None)
    found = set()
    for seed in range(6):
        folder, work = tmp_path / str(seed), Work(seed)
        with CircularJournal(str(folder), SETTINGS[name]) as journal:
            play_ours(journal, [work.line() for _ in range(300)])
            while len(work.live) > seed:  # the smaller the seed, the more may go
                play_ours(journal, [work.delete()])
            play_ours(journal, ["next", work.add()])
        files = read(folder).files()
        with real_journal(name, folder, file_size=FILE_SIZE) as real:
            real.load()
            real.tell("stop")
        left = {file.path: file.identity for file in read(folder).files()}
        kept = {file.path: left.get(file.path) == file.identity for file in files}
        assert kept == {file.path: not file.redundant for file in files}, f"seed {seed}"
        found |= {(file.redundant, file.why) for file in files}
    assert len(found) > 3, "nothing of interest to reclaim"
