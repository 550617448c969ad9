"""`AsyncJournal` has the calls of `Journal`, ends as they do, and never blocks its event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import LogClosedError, LogFullError
from tallystick.records import Xid
from tallystick.roles import JournalRecord
from tallystick.services.journal import (
    AsyncJournal,
    AsyncJournalTransaction,
    Journal,
    JournalTransaction,
)
from tallystick.services.journal.aio import BATCH_BYTES, BATCH_RECORDS, _in_threads
from tallystick.services.journal.ids import JournalIds
from tallystick.services.transactions import ResourceUnreachable
from tallystick.storage.local import LOCAL
from tallystick.storage.shared.client import Client, Cut
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.shared import log as shared_log
from tallystick.testing import NAMES, Fault, FaultyFileSystem
from tests.services.parity import RecordedCalls, differences, outcome, public_names

SMALL = Settings(segment_size=32 << 10, preallocate=False, idle_mark_s=None)

CALLS: dict[str, tuple[Any, ...]] = {
    "add": (1, b""),
    "append": (b"",),
    "append_many": ([b""],),
    "as_resource": ("journal",),
    "backup": ("/dev/null/copy",),
    "checkpoint": (),
    "close": (),
    "commit_prepared": (1,),
    "compact": (),
    "counters": (),
    "delete": (1,),
    "flush": (),
    "follow": (),
    "live_records": (),
    "next_lsn": (),
    "prepared": (),
    "reclaim": (),
    "replay": (),
    "rollback_prepared": (1,),
    "submit": (b"",),
    "transaction": (),
    "update": (1, b""),
}


def test_the_asynchronous_journal_has_every_call_with_the_same_parameters() -> None:
    assert differences(Journal, AsyncJournal) == {}
    assert differences(JournalTransaction, AsyncJournalTransaction) == {}


@pytest.mark.parametrize("system", ["tally", "jboss"])
@pytest.mark.parametrize("closed", [True, False])
async def test_both_faces_end_every_call_alike(tmp_path: Path, system: str, closed: bool) -> None:
    assert set(CALLS) == public_names(Journal) - {"forked"}  # which a fork calls
    names = sorted(CALLS, key=lambda name: (name in ("close", "follow"), name))

    async def outcomes(journal: Any) -> dict[str, str]:
        if closed:
            await outcome(journal, "close", ())
        else:
            names.remove("follow")  # it ends only with the journal
        return {name: await outcome(journal, name, CALLS[name]) for name in names}

    blocking = await outcomes(Journal(tmp_path / "one", system=system))
    names[:] = sorted(CALLS, key=lambda name: (name in ("close", "follow"), name))
    awaited = await outcomes(await AsyncJournal.open(tmp_path / "two", system=system))
    assert blocking == awaited
    if closed and system == "tally":
        assert blocking["append"] == blocking["replay"] == LogClosedError.__name__


async def test_no_call_reads_or_writes_a_file_in_the_thread_of_the_event_loop(
    tmp_path: Path,
) -> None:
    calls: list[tuple[int, str]] = []
    disk: Any = RecordedCalls(LOCAL, calls)

    async def open_journal() -> AsyncJournal:
        return await AsyncJournal.open(tmp_path / "log", settings=SMALL, fs=disk)

    async def use(journal: AsyncJournal) -> None:
        for number in range(60):  # over several segments
            await journal.append(bytes(2000))
            await journal.add(number, bytes(2000))
        await journal.append_many([bytes(1000)] * 100)
        await journal.submit(b"submitted")
        await journal.update(0, b"updated")
        for number in range(1, 60):
            await journal.delete(number)
        async with journal.transaction() as tx:
            tx.add(100, b"")
            tx.append(b"")
        with contextlib.suppress(KeyError):
            async with journal.transaction() as tx:
                tx.add(101, b"")
                raise KeyError
        assert len([one async for one in journal.live_records()]) == 3
        replayed = [one.sequence async for one in journal.replay(from_lsn=100, from_time=1.0)]
        assert replayed[0] == 100
        followed = [one.sequence async for one in journal.follow(150, idle_s=0.05)]
        assert followed[0] == 150
        await journal.backup(tmp_path / "copy")
        await journal.checkpoint()
        await journal.reclaim()
        await journal.compact(force=True)
        await journal.flush()
        assert journal.next_lsn == 290
        for number in (200, 201):
            async with journal.transaction() as tx:
                tx.add(number, b"")
                await tx.prepare(xid=Xid(1, b"g", b"%d" % number))

    async def settle(journal: AsyncJournal) -> None:
        one, other = await journal.prepared()
        await journal.commit_prepared(one.transaction)
        await journal.rollback_prepared(other.transaction)
        assert [one.record_id async for one in journal.live_records()] == [0, 0, 100, 200]

    async def work() -> int:
        for part in (use, settle):
            async with await open_journal() as journal:
                await part(journal)
        return threading.get_ident()

    loop_thread = await work()
    assert {"open", "create", "pread", "datasync", "remove"} & {name for _, name in calls}
    assert {"pread", "datasync"} <= {name for _, name in calls}
    assert [name for thread, name in calls if thread == loop_thread] == []


async def test_nor_does_a_journal_of_a_historic_system(tmp_path: Path) -> None:
    calls: list[tuple[int, str]] = []

    async def work() -> int:
        disk: Any = RecordedCalls(LOCAL, calls)
        async with await AsyncJournal.open(tmp_path / "log", system="jboss", fs=disk) as journal:
            for number in range(50):
                await journal.append(bytes(3000))
                await journal.add(number, bytes(3000))
            for number in range(49):
                await journal.delete(number)
            async with journal.transaction() as tx:
                tx.add(100, b"")
                await tx.prepare(b"extra")
            assert len(await journal.prepared()) == 1
            assert len([one async for one in journal.live_records()]) == 51
            assert len([one async for one in journal.replay()]) > 150
        return threading.get_ident()

    loop_thread = await work()
    assert {"pread", "datasync"} <= {name for _, name in calls}
    assert [name for thread, name in calls if thread == loop_thread] == []


@pytest.mark.parametrize("learner", ["itself", "another thread"])
async def test_ids_that_a_full_disk_has_put_in_doubt_are_learned_in_no_event_loop(
    tmp_path: Path, learner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning, learned_in = threading.Event(), list[int]()
    disk, go_on = FaultyFileSystem(LOCAL), threading.Event()
    learn = JournalIds.learn

    def slow_learn(ids: JournalIds) -> None:
        learned_in.append(threading.get_ident())
        learning.set()
        go_on.wait(10 if threading.get_ident() != loop_thread else 0)
        learn(ids)

    async def put_in_doubt(journal: AsyncJournal) -> None:
        learned_in.clear()
        disk.fault = Fault(1, NAMES, errno.ENOSPC, lasting=True)
        with pytest.raises(LogFullError):
            while True:
                await journal.add(next(numbers), bytes(5000))
        disk.fault = None

    numbers, loop_thread = itertools.count(100), threading.get_ident()
    async with await AsyncJournal.open(tmp_path / "log", settings=SMALL, fs=disk) as journal:
        await journal.add(1, b"")
        monkeypatch.setattr(JournalIds, "learn", slow_learn)

        async def prepare() -> None:
            tx = journal.transaction()
            tx.add(next(numbers), b"")
            await tx.prepare()
            await put_in_doubt(journal)
            await tx.commit()

        async def block() -> None:
            with contextlib.suppress(KeyError):
                async with journal.transaction() as tx:
                    tx.add(next(numbers), b"")
                    raise KeyError
            async with journal.transaction() as tx:
                tx.add(next(numbers), b"")
                tx.delete(1)

        async def change() -> None:
            await journal.update(100, b"")
            await journal.add(next(numbers), b"")
            await journal.delete(100)

        for work in (block, change, prepare):
            go_on.clear()
            learning.clear()
            await put_in_doubt(journal)
            if learner == "another thread":
                other = asyncio.create_task(asyncio.to_thread(journal._add, next(numbers), b"", 0))
                await asyncio.to_thread(learning.wait, 10)
            asyncio.get_running_loop().call_later(0.05, go_on.set)
            await asyncio.wait_for(work(), 5)
            if learner == "another thread":
                await (await other)
            assert learned_in
            assert loop_thread not in learned_in


async def test_transactions_of_a_shared_journal_begin_without_a_question_to_its_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_in: list[int] = []
    ask = Client.ask

    def noted(client: Client, request: bytes) -> bytes | Cut:
        asked_in.append(threading.get_ident())
        return ask(client, request)

    monkeypatch.setattr(Client, "ask", noted)
    monkeypatch.setattr(shared_log, "BLOCK", 8)
    numbers = set()
    async with await AsyncJournal.open(tmp_path / "log", shared=True) as journal:
        for _ in range(40):
            async with journal.transaction() as tx:
                numbers.add(tx.number)
                tx.append(b"")
    assert len(numbers) == 40
    assert asked_in
    assert threading.get_ident() not in asked_in


async def test_following_ends_when_idle_or_when_the_journal_is_closed(tmp_path: Path) -> None:
    journal = await AsyncJournal.open(tmp_path / "log", settings=SMALL)
    await journal.append_many([b"one", b"two"])
    followed = [one.body async for one in journal.follow(idle_s=0.05)]
    assert followed == [b"one", b"two"]

    async def follow() -> list[bytes | None]:
        return [one.body async for one in journal.follow(2, poll_s=0.001)]

    task = asyncio.create_task(follow())
    await asyncio.sleep(0.05)
    await journal.append(b"three")
    await asyncio.sleep(0.05)
    await journal.close()
    assert await asyncio.wait_for(task, 5) == [b"two", b"three"]


# -- iterators in worker threads ----------------------------------------------------------------


class Source:
    """An iterator that notes how far it was read, where it was closed, and may wait or fail."""

    def __init__(self, size: int = 0, fail_at: int | None = None) -> None:
        self.read = 0
        self.closed_in: int | None = None
        self.go_on = threading.Event()
        self.go_on.set()
        self._size = size
        self._fail_at = fail_at

    def __call__(self) -> Iterator[JournalRecord]:
        try:
            while True:
                self.go_on.wait(10)
                if self.read == self._fail_at:
                    raise KeyError("damaged")
                self.read += 1
                yield JournalRecord(self.read, 0, bytes(self._size))
        finally:
            self.closed_in = threading.get_ident()

    async def wait_until_closed(self) -> int:
        while self.closed_in is None:
            await asyncio.sleep(0.001)
        return self.closed_in


@pytest.mark.parametrize(
    ("size", "records"), [(0, BATCH_RECORDS), (BATCH_BYTES // 2, 2), (BATCH_BYTES * 2, 1)]
)
async def test_no_more_than_a_batch_is_read_ahead(size: int, records: int) -> None:
    source, seen = Source(size), 0
    async with contextlib.aclosing(_in_threads(source)) as items:
        async for _ in items:
            seen += 1
            assert seen <= source.read <= seen + records - 1
            if seen == 2 * records + 1:
                break
    assert await source.wait_until_closed() != threading.get_ident()


@pytest.mark.parametrize("cancels", [1, 2])
async def test_a_cancelled_reader_waits_for_its_batch_and_cancelled_again_does_not(
    cancels: int,
) -> None:
    source = Source()

    async def read() -> None:
        async for item in _in_threads(source):
            if item.record_id == BATCH_RECORDS:
                source.go_on.clear()

    task = asyncio.create_task(read())
    while source.go_on.is_set():
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0.01)
    assert source.closed_in is None, "a thread still reads"
    assert task.done() == (cancels == 2)
    source.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await source.wait_until_closed() != threading.get_ident()
    assert source.read <= 2 * BATCH_RECORDS


async def test_an_error_comes_after_the_records_before_it() -> None:
    source, seen = Source(fail_at=BATCH_RECORDS + 5), 0
    with pytest.raises(KeyError, match="damaged"):
        async for _ in _in_threads(source):
            seen += 1
    assert seen == BATCH_RECORDS + 5


async def test_a_closed_shared_journal_is_a_resource_that_cannot_be_reached(tmp_path: Path) -> None:
    for journal in (
        await AsyncJournal.open(tmp_path / "one", shared=True),
        Journal(tmp_path / "two", shared=True),
    ):
        await outcome(journal, "close", ())
        with pytest.raises(ResourceUnreachable):
            journal.as_resource("queue").in_doubt()
