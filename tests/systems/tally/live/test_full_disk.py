"""A disk that is full for a moment: the callers of that moment are told, and all goes on."""

from __future__ import annotations

import contextlib
import errno
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest import mock

import pytest

from tallystick.errors import LogFullError, LogPoisonedError, LogWriteError, TallystickError
from tallystick.services.journal import Journal, JournalTransaction
from tallystick.systems.tally.live.groups import refusals
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.record_journal import TallyRecordJournal
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tallystick.testing import CHANGES, SYNCS, Fault, FaultyFileSystem, MemoryFileSystem
from tests.roles.contract_undo_redo_log import recovered
from tests.sweeps import Sweep
from tests.systems.tally.build import FOLDER, TINY, say
from tests.systems.tally.script import Live, live_of, recover

ROOM = CHANGES - SYNCS - {"mkdir", "remove"}
"""Calls that need room on the disk."""
IDS = 12


def full(nth: int, partial: float = 0.0) -> Fault:
    """A disk without room from the n-th call on that needs some."""
    return Fault(nth, ROOM, errno.ENOSPC, partial=partial, lasting=True)


@dataclass
class Workload:
    """Random steps on a journal, with what must be there: of a refused step, nothing."""

    journal: Journal
    seed: int
    live: Live = field(default_factory=dict)
    plain: list[bytes] = field(default_factory=list)
    refused: int = 0
    held: JournalTransaction | None = None
    """A transaction that stays open over several steps, or prepared."""
    changes: list[Callable[[], object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.new_ids = itertools.count(200)
        self.random = random.Random(self.seed)

    def _body(self) -> bytes:
        return self.random.randbytes(self.random.choice((5, 300, 3000)))

    def step(self) -> None:
        """Do one step; count it if it was refused."""
        kinds = [
            self.add, self.add, self.change, self.change, self.append, self.many, self.whole,
            self.in_held, self.in_held, self.end_held, self.prepare, self.roll_back, self.free,
        ]  # fmt: skip
        kind = self.random.choice(kinds)
        try:
            kind()
        except LogFullError:
            self.refused += 1

    def add(self) -> None:
        key, body = self.random.randrange(IDS), self._body()
        if key not in self.live:
            self.journal.add(key, body)
            self.live[key] = (body,)

    def change(self) -> None:
        key, body = self.random.randrange(IDS), self._body()
        if key not in self.live:
            return
        if self.random.random() < 0.5:
            self.journal.update(key, body)
            self.live[key] += (body,)
        else:
            self.journal.delete(key)
            del self.live[key]

    def append(self) -> None:
        body = self._body()
        self.journal.append(body)
        self.plain.append(body)

    def many(self) -> None:
        bodies = [self._body()[:900] for _ in range(3)]  # one group: refused together
        self.journal.append_many(bodies)
        self.plain += bodies

    def whole(self) -> None:
        key, body, commit = 100 + self.random.randrange(IDS), self._body(), True
        if key in self.live:
            return
        with self.journal.transaction() as tx:
            tx.add(key, body)
            tx.update(key, b"more")
            if self.random.random() < 0.3:
                tx.rollback()
                commit = False
        if commit:
            self.live[key] = (body, b"more")

    def in_held(self) -> None:
        if self.held is None:
            self.held = self.journal.transaction()
        if self.held.prepared or len(self.changes) > 5:
            return
        key, body = next(self.new_ids), self._body()
        self.held.add(key, body)
        self.changes.append(lambda: self.live.update({key: (body,)}))

    def prepare(self) -> None:
        if self.held is None or self.held.prepared:
            return
        try:
            self.held.prepare(b"extra")
        except LogWriteError:
            self.held, self.changes = None, []
            raise

    def end_held(self) -> None:
        if self.held is None:
            return
        held, prepared = self.held, self.held.prepared
        try:
            held.commit()
        except LogWriteError:
            if prepared:  # it stays so, and can be ended again
                assert held.prepared
            else:
                self.held, self.changes = None, []
            raise
        for one in self.changes:
            one()
        self.held, self.changes = None, []

    def roll_back(self) -> None:
        if self.held is not None:
            held, prepared = self.held, self.held.prepared
            try:
                held.rollback()
            finally:
                if not prepared or not held.prepared:
                    self.held, self.changes = None, []

    def free(self) -> None:
        self.random.choice(
            (self.journal.reclaim, lambda: self.journal.compact(force=True), self.journal.flush)
        )()

    def check(self) -> None:
        """There is room: everything goes on, and what the journal shows is what it took."""
        self.end_held()
        self.add()
        self.change()
        self.whole()
        self.append()
        self.journal.flush()
        assert live_of(self.journal) == self.live
        found = [one.body for one in self.journal.replay() if one.type == "append"]
        assert found == self.plain


def run(fault: Fault | None, seed: int, full_for: int) -> tuple[FaultyFileSystem, Workload]:
    """Run steps on a disk that becomes full, and has room again after some refused steps."""
    fs = FaultyFileSystem(MemoryFileSystem())
    work = Workload(Journal(FOLDER, fs=fs, settings=TINY), seed)
    fs.fault = fault
    for _ in range(60):
        work.step()
        if work.refused >= full_for:
            fs.fault = None
    fs.fault = None
    work.check()
    return fs, work


@pytest.mark.long
@pytest.mark.both_cores
@pytest.mark.parametrize("partial", [0.0, 0.5])
def test_a_disk_that_is_full_for_a_moment_loses_and_poisons_nothing(
    sweep: Sweep, capsys: pytest.CaptureFixture[str], partial: float
) -> None:
    refused = tried = 0
    for nth in sweep.of(range(1, 160), 24):
        for full_for in (1, 4):
            fs, work = run(full(nth, partial), seed=nth, full_for=full_for)
            inner = fs.inner
            assert isinstance(inner, MemoryFileSystem)
            contents = inner.contents()
            assert recover(MemoryFileSystem(contents)) == work.live  # after a kill
            work.journal.close()
            assert recover(MemoryFileSystem(inner.contents())) == work.live
            tried, refused = tried + fs.struck, refused + work.refused
    say(capsys, f"journal: {tried} moments of a full disk, {refused} refusals, nothing lost")
    assert refused >= tried > 20


@pytest.mark.both_cores
def test_what_depends_on_a_refused_change_is_refused_with_it() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    journal = Journal(FOLDER, fs=fs, settings=TINY)
    fs.fault = full(1)
    tickets = [journal._add(1, bytes(900), 0), journal._update(1, b"more", 0)]
    tickets[0].start_flush()
    for ticket in tickets:
        with pytest.raises(LogFullError):
            ticket.wait()
    later = journal._engine.update(1, b"checked against the add")  # before the refusal is noted
    fs.fault = None
    with pytest.raises(LogFullError):
        later.wait()
    with pytest.raises(TallystickError, match="there is no record 1"):
        journal.update(1, b"more")
    journal.add(1, b"again")
    assert live_of(journal) == {1: (b"again",)}
    journal.close()


@pytest.mark.both_cores
def test_a_failed_sync_on_a_full_disk_is_final() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    journal = Journal(FOLDER, fs=fs, settings=TINY)
    fs.fault = Fault(1, {"datasync"}, errno.ENOSPC)
    with pytest.raises(LogPoisonedError):
        journal.add(1, b"one")
    with pytest.raises(LogPoisonedError):
        journal.append(b"two")


def test_what_is_owed_has_a_limit_and_is_written_once_there_is_room() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    with TallyLog(FOLDER, settings=TINY, fs=fs) as log:
        journal = TallyRecordJournal(log)
        fs.fault = full(1)
        added = 0
        with mock.patch.object(refusals, "OWED_MAX", 50_000), pytest.raises(LogFullError):
            while True:
                journal.add_in(5, added, bytes(900))
                added += 1
                with contextlib.suppress(LogFullError):
                    log.append(bytes(5)).wait()
        assert 50 < added < 100
        fs.fault = None
        journal.commit(5).wait()
        assert {one.record_id for one in journal.live_records()} == set(range(added))


@pytest.mark.both_cores
def test_nothing_is_kept_of_a_transaction_whose_prepare_was_refused_once_it_has_ended() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    with TallyLog(FOLDER, settings=TINY, fs=fs) as log:
        journal = TallyRecordJournal(log)
        for number in range(1, 31):
            journal.add_in(number, number, bytes(900))
            log.append(b"written").wait()
            fs.fault = full(1)
            with pytest.raises(LogFullError):
                journal.prepare(number, bytes(900)).wait()
            fs.fault = None
            if number % 3 == 0:
                journal.prepare(number).wait()
            (journal.rollback if number % 3 == 1 else journal.commit)(number).wait()
        kept = [one for one in vars(log.refusals).values() if isinstance(one, list | set | dict)]
        assert len(kept) == 2
        assert not any(kept)
        assert not log.refusals.active


@pytest.mark.both_cores
def test_a_refused_rollback_of_one_that_was_prepared_at_last_is_not_done_later() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    with TallyLog(FOLDER, settings=TINY, fs=fs) as log:
        journal = TallyRecordJournal(log)
        journal.add_in(5, 1, bytes(900))
        for refused in (True, False):
            fs.fault = full(1) if refused else None
            with pytest.raises(LogFullError) if refused else contextlib.nullcontext():
                journal.prepare(5, bytes(900)).wait()
        fs.fault = full(1)
        with pytest.raises(LogFullError):
            for _ in range(100):
                log.append(bytes(900)).wait()
        with pytest.raises(LogFullError):
            journal.rollback(5).wait()
        fs.fault = None
        log.append(b"room again").wait()
        assert [one.transaction for one in journal.prepared()] == [5]


@pytest.mark.parametrize("way", ["commit", "prepare"])
@pytest.mark.parametrize("times", [1, 2])
def test_rows_of_a_session_whose_end_was_refused_stay_for_the_next_try(
    way: str, times: int
) -> None:
    faulty = FaultyFileSystem(MemoryFileSystem())
    log = TallyUndoRedoLog(TallyLog(FOLDER, settings=TINY, fs=faulty))
    for number in range(times):
        log.log_row(3, 1, number, b"row")
        log.flush().wait()
        faulty.fault = full(1)
        with pytest.raises(LogFullError):
            (log.commit(3) if way == "commit" else log.prepare_commit(3, "name")).wait()
        faulty.fault = None
        log.remove_until(log.checkpoint())
    if way == "prepare":
        log.prepare_commit(3, "name").wait()
    log.commit(3).wait()
    assert recovered(log).rows == {(1, number): b"row" for number in range(times)}
    last = log.checkpoint()
    log.remove_until(last)
    assert not recovered(log).rows, "nothing keeps them now"
    log.close()


@pytest.mark.parametrize("copy", [1, 2])
def test_a_checkpoint_that_was_refused_gives_nothing_up_later(copy: int) -> None:
    """Its caller goes on from the checkpoint before, and needs the records after that."""
    memory = MemoryFileSystem()
    fs, refused = FaultyFileSystem(memory), False
    with Journal(FOLDER, settings=TINY, fs=fs) as journal:
        for number in range(40):
            journal.append(b"%d" % number + bytes(2000))
        # Of the control block there are two copies; the first one decides.
        fs.fault = Fault(copy, {"pwrite", "pwritev"}, errno.ENOSPC, lasting=True, partial=0.5)
        try:
            assert journal.checkpoint() > 0
        except LogFullError:
            refused = True
        fs.fault = None
        with Journal(FOLDER, settings=TINY, fs=MemoryFileSystem(memory.contents())) as killed:
            assert (sum(1 for _ in killed.replay()) == 40) is refused
        assert journal.reclaim() == 0
        journal.append(b"last")
        assert (sum(1 for _ in journal.replay()) == 41) is refused
        assert (journal.checkpoint() > 0) is refused
    assert refused is (copy == 1)
