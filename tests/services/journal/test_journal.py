"""The journal on the native log: both faces, transactions, replay, files."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import resource
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, assert_type
from unittest.mock import Mock

import pytest

from tallystick.errors import (
    LogClosedError,
    LogFullError,
    LogLockedError,
    LogPoisonedError,
    RecordTooLargeError,
    TransactionUsageError,
    UnsupportedFormatError,
)
from tallystick.reading import scan
from tallystick.records import NumberedRecord, Xid
from tallystick.services.journal import AsyncJournal, Journal
from tallystick.systems.tally.live import read_back
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing import Fault, FaultyFileSystem, MemoryFileSystem, check_kills
from tallystick.testing.kill import Reporter
from tests.systems.tally.build import say

SMALL = Settings(segment_size=32 << 10, preallocate=False, idle_mark_s=None)


def _journal(path: Path) -> Journal:
    return Journal(path / "log", settings=SMALL)


def _plain(journal: Journal, from_lsn: int = 0) -> list[bytes | None]:
    return [one.body for one in journal.replay(from_lsn=from_lsn)]


def test_what_was_appended_comes_back_in_order_after_reopening(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        assert [journal.append(b"one"), journal.append(b"two")] == [1, 2]
        tickets = [journal.submit(b"%d" % number) for number in range(3)]
        assert [ticket.wait() for ticket in tickets] == [3, 4, 5]
    with _journal(tmp_path) as journal:
        assert _plain(journal) == [b"one", b"two", b"0", b"1", b"2"]
        assert journal.append(b"after") == 6


@pytest.mark.parametrize("count", [0, 1, 7, 3000])
def test_append_many_gives_lsns_in_order(tmp_path: Path, count: int) -> None:
    bodies = [b"%d" % number * (number % 20) for number in range(count)]
    with _journal(tmp_path) as journal:
        journal.append(b"before")
        assert journal.append_many(bodies) == (range(2, 2 + count) if count else range(0))
        journal.append(b"after")
        assert _plain(journal) == [b"before", *bodies, b"after"]


def test_append_many_of_many_threads_gives_each_the_numbers_of_its_own_records(
    tmp_path: Path,
) -> None:
    given: dict[int, tuple[list[bytes], list[int]]] = {}
    with _journal(tmp_path) as journal:

        def work(thread: int) -> None:
            bodies = [b"%d %d " % (thread, number) + bytes(700) for number in range(300)]
            given[thread] = (bodies, list(journal.append_many(bodies)))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        written = {one.sequence: one.body for one in journal.replay()}
    for bodies, lsns in given.values():
        assert [written[lsn] for lsn in lsns] == bodies
    assert len(written) == 4 * 300


def test_replay_from_an_lsn_and_from_a_time(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        journal.append_many([bytes(500)] * 200)
        time.sleep(0.002)
        middle = time.time()
        time.sleep(0.002)
        journal.append_many([b"late"] * 100)
        assert [one.sequence for one in journal.replay(from_lsn=150)] == list(range(150, 301))
        assert [one.sequence for one in journal.replay(from_time=middle)] == list(range(201, 301))
        assert list(journal.replay(from_lsn=301)) == []


def test_a_record_that_is_replayed_or_scanned_whole_has_number_and_body(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        journal.append(b"plain")
        journal.add(1, b"live")
        journal.delete(1)
        replayed = [(assert_type(one.lsn, int), one.body) for one in journal.replay()]
        assert replayed == [(1, b"plain"), (2, b"live"), (3, b"")]
        followed = journal.follow(from_lsn=3, idle_s=0)
        assert [(one.lsn, assert_type(one.body, bytes)) for one in followed] == replayed[2:]
    scanned = [one for one in scan(tmp_path) if isinstance(one, NumberedRecord)]
    assert [(one.lsn, one.body) for one in scanned] == replayed


def test_records_live_until_they_are_deleted(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        journal.add(7, b"x", user_type=3)
        journal.update(7, b"y")
        journal.add(8, b"z")
        journal.delete(8)
    with _journal(tmp_path) as journal:
        found = [(r.record_id, r.user_type, r.body, r.update) for r in journal.live_records()]
        assert found == [(7, 3, b"x", False), (7, 0, b"y", True)]


def test_wrong_use_of_ids_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        journal.add(1, b"")
        before = journal.next_lsn
        with pytest.raises(TransactionUsageError, match="record 1 exists"):
            journal.add(1, b"again")
        with pytest.raises(TransactionUsageError, match="no record 2"):
            journal.update(2, b"")
        with pytest.raises(TransactionUsageError, match="no record 2"):
            journal.delete(2)
        assert journal.next_lsn == before


def test_transaction_counts_whole_or_not_at_all(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        journal.add(3, b"old")
        with journal.transaction() as tx:
            tx.add(7, b"x")
            tx.update(7, b"y")
            tx.delete(3)
        with pytest.raises(RuntimeError), journal.transaction() as tx:
            tx.add(9, b"never")
            raise RuntimeError
    with _journal(tmp_path) as journal:
        assert [(r.record_id, r.body) for r in journal.live_records()] == [(7, b"x"), (7, b"y")]


def test_transaction_open_at_the_end_of_its_process_is_rolled_back(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        journal.transaction().add(5, b"left open")
        journal.append(b"makes it durable")
    with _journal(tmp_path) as journal:
        assert list(journal.live_records()) == []
        journal.add(5, b"free again")
        with journal.transaction() as tx:
            tx.add(6, b"another")
        assert {r.record_id for r in journal.live_records()} == {5, 6}


@pytest.mark.parametrize("commit", [True, False])
def test_prepared_transaction_stays_in_doubt_over_a_restart(tmp_path: Path, commit: bool) -> None:
    xid = Xid(1, b"global", b"branch")
    with _journal(tmp_path) as journal:
        journal.add(1, b"one")
        with journal.transaction() as tx:
            tx.add(2, b"two")
            tx.delete(1)
            tx.prepare(b"extra", xid)
    with _journal(tmp_path) as journal:
        (found,) = journal.prepared()
        assert (found.extra, found.deletes) == (b"extra", (1,))
        assert [r.record_id for r in journal.live_records()] == [1]
        (journal.commit_prepared if commit else journal.rollback_prepared)(found.transaction)
        with pytest.raises(TransactionUsageError, match="not in doubt"):
            journal.commit_prepared(found.transaction)
        assert [r.record_id for r in journal.live_records()] == ([2] if commit else [1])


def test_ended_transaction_refuses_more(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        tx = journal.transaction()
        tx.add(1, b"")
        tx.commit()
        with pytest.raises(TransactionUsageError, match="ended"):
            tx.add(2, b"")
        with pytest.raises(TransactionUsageError, match="ended"):
            tx.rollback()


def test_threads_share_groups(tmp_path_factory: pytest.TempPathFactory) -> None:
    def work() -> None:
        for number in range(40):
            journal.append(b"%d" % number)

    # On a disk: where a sync takes no time, nobody comes while it runs.
    with _journal(tmp_path_factory.mktemp("disk")) as journal:
        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(_plain(journal)) == 640
        assert journal.counters.fsyncs < 320


async def test_tasks_share_groups_and_await(tmp_path: Path) -> None:
    async def work() -> int:
        async with await AsyncJournal.open(str(tmp_path / "log"), settings=SMALL) as journal:
            lsns = await asyncio.gather(*(journal.append(b"%d" % n) for n in range(500)))
            assert sorted(lsns) == list(range(1, 501))
            await journal.add(1, b"")
            async with journal.transaction() as tx:
                tx.add(2, b"")
                tx.delete(1)
            await journal.append_many([b"x"] * 10)
            assert [r.record_id async for r in journal.live_records()] == [2]
            followed = []
            async for record in journal.follow(495):
                followed.append(record.sequence)
                if len(followed) == 5:
                    break
            assert followed == [495, 496, 497, 498, 499]
            return journal.counters.fsyncs

    assert await work() < 20


def test_following_sees_records_of_other_threads_over_rolls(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        journal.append(b"before")

        def write() -> None:
            for number in range(100):
                journal.append(b"%d" % number + bytes(900))

        thread = threading.Thread(target=write)
        thread.start()
        seen = [one.sequence for one in journal.follow(1, poll_s=0.001, idle_s=0.3)]
        thread.join()
        assert seen == list(range(1, 102))


def test_a_reader_that_looks_seldom_is_idle_no_longer_than_it_may_be(tmp_path: Path) -> None:
    with Journal(tmp_path / "log") as journal:
        journal.append(b"first")
        assert len(list(journal.follow(poll_s=math.inf, idle_s=0.05))) == 1


def test_a_body_that_no_layout_has_a_place_for_is_too_large(tmp_path: Path) -> None:
    with Journal(tmp_path / "log", system="jboss") as journal:
        with pytest.raises(RecordTooLargeError):
            journal.append(bytes(1 << 31))
        with pytest.raises(RecordTooLargeError):
            journal.append_many([bytes(1 << 31), b"fits"])
        journal.append(b"fits")
        assert len(list(journal.replay())) == 1


def test_following_gives_what_a_checkpoint_gave_up_after_it_began(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        journal.append(bytes(900))
        followed = iter(journal.follow(idle_s=0.0))
        seen = [next(followed).sequence]
        for _ in range(200):
            journal.append(bytes(900))
            journal.checkpoint()
        seen += [one.sequence for one in followed]
        assert seen == list(range(1, 202))
        journal.checkpoint()
        assert len(list((tmp_path / "log").glob("*.tally"))) < 6


class Late(MemoryFileSystem):
    """Says what was in a folder before something else was done."""

    meanwhile: Callable[[], object] | None = None

    def list(self, path: str) -> list[str]:
        """Return the names as they were a moment ago."""
        names = super().list(path)
        if self.meanwhile is not None:
            call, self.meanwhile = self.meanwhile, None
            call()
        return names


@pytest.mark.parametrize("from_lsn", [0, 10])
def test_a_checkpoint_while_reading_begins_is_no_error(from_lsn: int) -> None:
    fs = Late()
    with Journal("/log", settings=SMALL, fs=fs) as journal:

        def give_up() -> None:
            journal.append_many([b"new"] * 2 + [bytes(1000)] * 100 + [b"new"] * 2)
            assert journal.checkpoint() > 0

        journal.append_many([bytes(1000)] * 100)
        first = journal.next_lsn
        setattr(fs, "meanwhile", give_up)  # noqa: B010 - for mypy it would stay so
        read = [one.sequence for one in journal.replay(from_lsn=from_lsn)]
        assert fs.meanwhile is None
        assert read == [] or read[0] > first  # what the checkpoint has left
        assert len(list(journal.replay())) > 0


def test_every_change_to_a_closed_journal_says_that_it_is_closed(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        journal.add(1, b"one")
    for change in (journal.add, journal.update, journal.delete):
        for record_id in (1, 2):
            with pytest.raises(LogClosedError):
                change(record_id, *() if change == journal.delete else (b"x",))


def test_live_records_that_were_moved_before_they_were_read_are_read(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        journal.add(1, b"one")
        journal.add(2, b"two")
        journal.append_many([bytes(1000)] * 100)
        records = journal.live_records()
        journal.checkpoint()
        assert journal.compact(force=True) > 0
        assert [(one.record_id, one.body) for one in records] == [(1, b"one"), (2, b"two")]


async def test_readers_left_in_the_middle_are_no_error_as_the_loop_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run() -> None:
        async def work() -> None:
            left: list[AsyncIterator[Any]] = [
                journal.replay(), journal.live_records(), journal.follow()
            ]  # fmt: skip
            assert [(await anext(one)).body for one in left] == [b"one"] * 3
            kept.extend(left)  # else they are closed here

        asyncio.run(work())

    kept: list[object] = []
    journal = await AsyncJournal.open(tmp_path / "log")
    await journal.add(1, b"one")
    await asyncio.to_thread(run)
    await journal.close()
    assert caplog.messages == []


def test_checkpoint_frees_plain_records_and_recycles_their_files(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        for _ in range(20):
            journal.append_many([bytes(1000)] * 50)
            journal.checkpoint()
        files = list((tmp_path / "log").glob("*.tally"))
        assert len(files) < 6
        assert journal.next_lsn == 1001


def test_live_record_pins_its_segment_until_compaction(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        journal.add(1, b"stays")
        journal.update(1, b"stays too")
        for number in range(2, 300):
            journal.add(number, bytes(1000))
            journal.delete(number)
        assert journal.reclaim() == 0
        assert journal.compact() > 5
        assert [r.body for r in journal.live_records()] == [b"stays", b"stays too"]
    with _journal(tmp_path) as journal:
        assert [r.body for r in journal.live_records()] == [b"stays", b"stays too"]
        assert journal.compact() == 0


def test_record_larger_than_a_segment_is_refused_and_the_log_goes_on(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        with pytest.raises(RecordTooLargeError) as caught:
            journal.append(bytes(32 << 10))
        assert caught.value.retryable is False
        with pytest.raises(RecordTooLargeError):
            journal.append_many([b"", bytes(32 << 10)])
        assert journal.append(b"fine") == 1


def test_second_opener_is_refused_and_a_closed_journal_too(tmp_path: Path) -> None:
    journal = _journal(tmp_path)
    with pytest.raises(LogLockedError):
        _journal(tmp_path)
    journal.close()
    journal.close()
    with pytest.raises(LogClosedError):
        journal.append(b"")


def test_forked_child_cannot_write_into_its_parents_log(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        journal.append(b"parent")
        child = os.fork()
        if child == 0:
            try:
                journal.append(b"child")
            except LogClosedError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        journal.append(b"parent again")
        assert _plain(journal) == [b"parent", b"parent again"]


def test_closed_journal_is_not_followed_but_what_was_half_read_ends(tmp_path: Path) -> None:
    journal = _journal(tmp_path)
    journal.append(b"1")
    half = journal.follow()
    assert next(half).body == b"1"
    journal.close()
    assert list(half) == []
    with pytest.raises(LogClosedError, match="the log is closed"):
        journal.follow()


async def test_closed_journal_of_tasks_is_not_followed(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "log", settings=SMALL)
    await journal.close()
    with pytest.raises(LogClosedError, match="the log is closed"):
        await anext(aiter(journal.follow()))


def _in_child(work: Callable[[], object]) -> None:
    """Run ``work`` in a forked child; fail if it raises."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("shared", [False, True])
def test_forked_child_waits_for_no_lock_of_its_parents_threads(
    tmp_path: Path, shared: bool
) -> None:
    with Journal(tmp_path / "j", shared=shared) as journal:
        tx = journal.transaction()
        tx.add(5, b"parent")

        uses: tuple[Callable[[], object], ...] = (
            lambda: journal.add(1, b"child"),
            lambda: tx.update(5, b"child"),
            tx.commit,
            lambda: journal.transaction().append(b"child"),
        )

        def work() -> None:
            for use in uses:
                with pytest.raises(LogClosedError, match="forked"):
                    use()

        with journal._order:  # as if other threads were at work
            numbers = getattr(getattr(journal._engine, "log", None), "_numbers_lock", None)
            with numbers or contextlib.nullcontext():
                _in_child(work)
        tx.commit()


def test_forked_child_follows_nothing_and_closes_silently(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        journal.append(b"1")
        half = journal.follow()
        assert next(half).body == b"1"

        def work() -> None:
            with pytest.raises(LogClosedError, match="forked"):
                journal.follow()
            with pytest.raises(LogClosedError, match="forked"):
                next(half)
            journal.close()

        _in_child(work)
        journal.append(b"2")
        assert next(half).body == b"2"


def test_forked_child_of_tasks_follows_nothing_and_closes_silently(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "log", settings=SMALL)

    def work() -> None:  # in a child of a task no event loop runs
        with pytest.raises(LogClosedError, match="forked"):
            next(anext(aiter(journal.follow())).__await__())
        with pytest.raises(StopIteration):
            journal.close().send(None)

    _in_child(work)
    asyncio.run(journal.close())


@contextlib.contextmanager
def _descriptors(number: int) -> Iterator[None]:
    """Leave so many descriptors to this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + number, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_journal_that_gets_no_descriptor_goes_on_when_there_is_one(tmp_path: Path) -> None:
    def work() -> None:
        with _journal(tmp_path) as journal:
            with _descriptors(0), pytest.raises(LogFullError, match="no file descriptor"):
                for _ in range(100):
                    journal.append(bytes(1000))
            written = journal.append(b"there are some")
            with _descriptors(1):  # is enough
                for _ in range(100):
                    journal.append(bytes(1000))
            with _descriptors(0), pytest.raises(LogFullError, match="no file descriptor"):
                journal.checkpoint()
            assert journal.append(b"and goes on") == written + 101
            journal.checkpoint()
            assert len(list((tmp_path / "log").glob("*.tally"))) < 6

    _in_child(work)


def test_failed_sync_poisons_and_reopening_recovers() -> None:
    inner = MemoryFileSystem()
    with Journal("/log", settings=SMALL, fs=inner) as journal:
        journal.append(b"safe")
    faulty = FaultyFileSystem(inner, Fault(4, calls={"datasync"}))
    journal = Journal("/log", settings=SMALL, fs=faulty)
    with pytest.raises(LogPoisonedError):
        for number in range(10):
            journal.append(b"%d" % number)
    with pytest.raises(LogPoisonedError):
        journal.append(b"never")
    with pytest.raises(LogPoisonedError):
        journal.close()
    with Journal("/log", settings=SMALL, fs=inner) as journal:
        assert _plain(journal)[0] == b"safe"


def test_unknown_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFormatError, match="cannot carry a journal"):
        Journal(tmp_path, system="papyrus")


def test_historic_system_carries_a_journal_through_its_role(tmp_path: Path) -> None:
    with Journal(tmp_path / "log", system="jboss") as journal:
        journal.add(1, b"one")
        journal.append(b"plain")
        assert len(journal.append_many([b"a", b"b"])) == 2
        with journal.transaction() as tx:
            tx.add(2, b"two")
            tx.append(b"plain too")
            tx.delete(1)
        with pytest.raises(UnsupportedFormatError):
            journal.replay(from_lsn=5).__next__()
    with Journal(tmp_path / "log", system="jboss") as journal:
        bodies = sorted(one.body for one in journal.live_records())
        assert bodies == [b"a", b"b", b"plain", b"plain too", b"two"]
        replayed = list(journal.replay())
        assert {b"one", b"two"} <= {one.body for one in replayed}
        assert [one.lsn for one in replayed] == list(range(1, len(replayed) + 1))


def _kill(folder: Path, kills: int) -> int:
    def work(reporter: Reporter) -> None:
        with _journal(folder) as journal:
            for number in range(200):
                body = f"{os.getpid()}-{number}-".ljust(1 + number * 7 % 900, "x")
                reporter.submitted(body)
                journal.append(body.encode())
                reporter.acknowledged(body)

    def recover() -> list[str]:
        with _journal(folder) as journal:
            return [(one.body or b"").decode() for one in journal.replay()]

    return check_kills(work, recover, kills=kills)


@pytest.mark.long
def test_killed_owner_loses_nothing_and_leaves_no_lock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    acknowledged = _kill(tmp_path, 15)
    say(capsys, f"15 kills, {acknowledged} records acknowledged, none lost")


@pytest.mark.soak
def test_a_thousand_kills_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    total = sum(_kill(tmp_path / str(part), 50) for part in range(20))
    say(capsys, f"1,000 kills, {total} records acknowledged, none lost")


@pytest.mark.parametrize("shared", [False, True])
def test_prepared_transactions_are_read_at_once_and_settled_without_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shared: bool
) -> None:
    with Journal(tmp_path / "log", shared=shared) as journal:
        for number in range(9):
            with journal.transaction() as tx:
                tx.add(number, b"body")
                tx.prepare(b"extra")
        passes = Mock(wraps=read_back.rows_from)
        monkeypatch.setattr(read_back, "rows_from", passes)
        found = journal.prepared()
        assert [[one.body for one in each.records] for each in found] == [[b"body"]] * 9
        assert passes.call_count == 1
        for each in found:
            journal.commit_prepared(each.transaction)
        assert passes.call_count == 1
        with pytest.raises(TransactionUsageError, match="not in doubt"):
            journal.commit_prepared(found[0].transaction)
        assert not journal.prepared()


def _leave(journal: Journal, record_id: int) -> None:
    journal.transaction().add(record_id, b"left")


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
def test_a_transaction_that_nothing_refers_to_any_more_is_rolled_back(
    tmp_path: Path, shared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It would hold its segment, and all later ones, for as long as the process runs."""
    with Journal(tmp_path / "log", settings=SMALL, shared=shared) as journal:
        for _ in range(3):
            _leave(journal, 1)
        with journal.transaction() as kept, journal.transaction() as prepared:
            kept.add(2, b"kept")
            prepared.add(3, b"prepared")
            number = prepared.number
            prepared.prepare()
        del prepared
        gc.collect()
        journal.append_many([bytes(1000)] * 200)
        assert journal.checkpoint() == 0  # records 2 and 3 are needed
        held = set((tmp_path / "log").glob("*.tally"))
        journal.delete(2)
        journal.rollback_prepared(number)
        journal.checkpoint()  # the leader of a shared log may have freed them before
        assert len(held - set((tmp_path / "log").glob("*.tally"))) > 3
        assert list(journal.live_records()) == []
        journal.add(1, b"free")
    left = [one for one in caplog.records if "left without an end" in one.getMessage()]
    assert len(left) == 3


def test_many_transactions_that_are_left_take_no_memory(tmp_path: Path) -> None:
    with _journal(tmp_path) as journal:
        for _ in range(50):
            _leave(journal, 1)
        assert len(journal._left) <= 1


@pytest.mark.parametrize(
    "options", [{}, {"shared": True}, {"system": "jboss"}], ids=["tally", "shared", "jboss"]
)
def test_of_several_bodies_none_is_written_if_one_is_too_large(
    options: dict[str, Any], tmp_path: Path
) -> None:
    with Journal(tmp_path / "log", **options) as journal:
        with pytest.raises(RecordTooLargeError):
            journal.append_many([b"first", bytes(17 << 20)])
        assert list(journal.replay()) == []


@pytest.mark.parametrize("system", ["tally", "jboss"])
def test_of_several_bodies_none_is_written_if_one_is_none(system: str, tmp_path: Path) -> None:
    with Journal(tmp_path / "log", system=system) as journal:
        with pytest.raises(TypeError, match="str"):
            journal.append_many([b"first", "second"])  # type: ignore[list-item]
        assert list(journal.replay()) == []
