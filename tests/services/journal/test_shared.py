"""A journal that several openers share: the same calls, one log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tallystick import Journal
from tallystick.errors import (
    LogClosedError,
    LogLockedError,
    RecordTooLargeError,
    TransactionUsageError,
    UnsupportedFormatError,
)
from tallystick.services.journal import AsyncJournal
from tallystick.storage.shared import kernel, members
from tallystick.systems.tally.live.settings import Settings

_SMALL = Settings(segment_size=64 << 10)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Journal, Journal]]:
    with (
        Journal(tmp_path / "log", shared=True, settings=_SMALL) as leader,
        Journal(tmp_path / "log", shared=True, settings=_SMALL) as follower,
    ):
        yield leader, follower


def test_all_openers_append_to_one_log_and_read_all_of_it(both: tuple[Journal, Journal]) -> None:
    one, other = both
    lsns = [journal.append(b"%d" % number) for number, journal in enumerate([one, other] * 10)]
    assert lsns == sorted(lsns)
    bodies = [b"%d" % number for number in range(20)]
    for journal in both:
        assert [record.body for record in journal.replay()] == bodies
        assert [record.body for record in journal.replay(from_lsn=lsns[5])] == bodies[5:]
        assert [record.body for record in journal.follow(idle_s=0.1)] == bodies


def test_a_follower_gets_what_a_checkpoint_of_another_opener_gave_up_meanwhile(
    both: tuple[Journal, Journal],
) -> None:
    one, other = both
    one.append(bytes(900))
    followed = iter(other.follow(idle_s=0.0))
    seen = [next(followed).sequence]
    for _ in range(200):
        one.append(bytes(900))
        one.checkpoint()
    seen += [record.sequence for record in followed]
    assert seen == list(range(1, 202))


def test_ids_are_those_of_all_openers(both: tuple[Journal, Journal]) -> None:
    one, other = both
    one.add(7, b"new")
    with pytest.raises(TransactionUsageError, match="exists"):
        other.add(7, b"again")
    other.update(7, b"paid")
    with pytest.raises(TransactionUsageError, match="no record"):
        other.update(8, b"none")
    assert [(x.record_id, x.body) for x in one.live_records()] == [(7, b"new"), (7, b"paid")]
    one.delete(7)
    with pytest.raises(TransactionUsageError, match="no record"):
        other.delete(7)
    assert list(other.live_records()) == []


def test_transactions_of_all_openers_have_numbers_of_their_own(
    both: tuple[Journal, Journal],
) -> None:
    one, other = both
    first, second = one.transaction(), other.transaction()
    assert first.number != second.number
    first.add(1, b"one")
    second.add(2, b"two")
    second.commit()
    assert [x.record_id for x in one.live_records()] == [2]
    first.commit()
    assert [x.record_id for x in other.live_records()] == [2, 1]
    with pytest.raises(TransactionUsageError, match="already a record 1"), one.transaction() as tx:
        tx.add(1, b"again")
    with other.transaction() as tx:
        tx.delete(1)
        tx.add(1, b"new")
        tx.update(1, b"newer")
    assert [x.body for x in one.live_records() if x.record_id == 1] == [b"new", b"newer"]


def test_what_one_has_prepared_another_one_can_settle(both: tuple[Journal, Journal]) -> None:
    one, other = both
    transaction = one.transaction()
    transaction.add(5, b"five")
    transaction.prepare(b"extra")
    (found,) = other.prepared()
    assert (found.transaction, found.extra) == (transaction.number, b"extra")
    other.commit_prepared(found.transaction)
    assert [x.record_id for x in one.live_records()] == [5]


def test_files_are_freed_for_all_and_kept_for_those_who_read(
    both: tuple[Journal, Journal],
) -> None:
    one, other = both
    other.append_many([bytes(1000)] * 300)
    reading = other.replay()
    assert next(reading).body == bytes(1000)
    assert one.checkpoint() > 2
    assert len(list(reading)) == 299
    other.add(1, b"stays")
    other.append_many([bytes(1000)] * 300)
    assert other.checkpoint() >= 0
    assert other.compact(force=True) >= 3
    assert [x.body for x in one.live_records()] == [b"stays"]


def test_any_opener_backs_the_log_up_while_the_others_go_on(
    both: tuple[Journal, Journal], tmp_path: Path
) -> None:
    one, other = both
    one.append_many([bytes(1000)] * 200)
    other.backup(tmp_path / "copy", progress=lambda *_: one.append(b"later"))
    with Journal(tmp_path / "copy") as copy:
        assert [record.body for record in copy.replay()] == [bytes(1000)] * 200
    assert one.append(b"after") > 201


def test_the_close_of_one_disturbs_nobody(tmp_path: Path) -> None:
    path = tmp_path / "log"
    journals = [Journal(path, shared=True) for _ in range(4)]
    for journal in list(journals):
        for other in journals:
            other.append(b"x")
        journals.remove(journal)
        journal.close()
        with pytest.raises(LogClosedError):
            journal.append(b"y")
    with Journal(path) as alone:
        assert len(list(alone.replay())) == 10
        assert alone.append(b"z") == 11
        with pytest.raises(LogLockedError, match="alone"):
            _impatient(path)
    with Journal(path, shared=True) as again:
        assert again.append(b"z") == 12
        with pytest.raises(LogLockedError):
            Journal(path)


def _impatient(path: Path) -> None:
    before = members.LOCK_WAIT_S
    members.LOCK_WAIT_S = 0.1  # type: ignore[misc]
    try:
        Journal(path, shared=True).close()
    finally:
        members.LOCK_WAIT_S = before  # type: ignore[misc]


def test_settings_keys_and_versions_must_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    key = bytes(32)
    with Journal(path, shared=True, settings=_SMALL, key=lambda: key) as journal:
        journal.append(b"secret")
        for settings, wrong in ((replace(_SMALL, idle_mark_s=9.0), key), (_SMALL, b"x" * 32)):
            with pytest.raises(UnsupportedFormatError, match="other settings, or another key"):
                Journal(path, shared=True, settings=settings, key=lambda: wrong)
        monkeypatch.setattr(members, "VERSION", members.VERSION + 1)
        with pytest.raises(UnsupportedFormatError, match="another version"):
            Journal(path, shared=True, settings=_SMALL, key=lambda: key)
        monkeypatch.undo()
        assert journal.append(b"more") == 2
    with Journal(path, shared=True, settings=replace(_SMALL, idle_mark_s=9.0), key=lambda: key):
        pass


def test_what_an_earlier_boot_has_left_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    with Journal(path, shared=True) as journal:
        journal.append(b"one")
        monkeypatch.setattr(kernel, "boot_id", lambda: b"another boot")
        with pytest.raises(LogLockedError, match="another machine"):
            Journal(path, shared=True)
        monkeypatch.undo()
    for left in path.glob("shared.*"):
        left.write_bytes(b"\xff" * 100)
    (path / "shared.99").write_bytes(bytes(8192))
    with Journal(path, shared=True) as journal:
        assert [record.body for record in journal.replay()] == [b"one"]
        assert not (path / "shared.99").exists()


def test_a_large_record_and_a_large_batch_go_through_and_a_larger_one_is_refused(
    both: tuple[Journal, Journal],
) -> None:
    one, other = both
    for journal in both:
        journal.append(b"x" * 50_000)
        with pytest.raises(RecordTooLargeError):
            journal.append(bytes(60_000))
    tickets = [other.submit(b"%d" % number * 30) for number in range(5000)]
    lsns = [ticket.wait() for ticket in tickets]
    assert lsns == list(range(3, 5003))
    assert len(list(one.replay())) == 5002


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_cannot_use_its_parents_journal_and_opens_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Journal(path, shared=True) as journal:
        journal.append(b"parent")
        pid = os.fork()
        if pid == 0:
            try:
                journal.append(b"child")
            except LogClosedError:
                journal.close()
                with Journal(path, shared=True) as own:
                    own.append(b"own")
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        journal.append(b"parent")
        bodies = [record.body for record in journal.replay()]
    assert bodies == [b"parent", b"own", b"parent"]


def test_logs_of_other_systems_are_not_shared(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFormatError, match="cannot be shared"):
        Journal(tmp_path / "log", system="jboss", shared=True)


def test_tasks_of_two_loops_share_the_groups(tmp_path: Path) -> None:
    path = tmp_path / "log"
    acknowledged: list[int] = []

    async def run() -> None:
        async with await AsyncJournal.open(path, shared=True) as journal:
            acknowledged.extend(await asyncio.gather(*(journal.append(b"x") for _ in range(300))))
            async with journal.transaction() as transaction:
                transaction.append(b"in")
            assert journal.counters.fsyncs < 100
            with pytest.raises(TransactionUsageError, match="no record 9"):
                async with journal.transaction() as transaction:
                    transaction.delete(9)

    threads = [threading.Thread(target=lambda: asyncio.run(run())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(acknowledged)) == 600


@pytest.mark.parametrize("another", [False, True])
def test_a_closed_journal_looks_into_no_folder_any_more(tmp_path: Path, another: bool) -> None:
    """The number of its folder's descriptor may be that of another journal's folder."""
    Journal(tmp_path / "other", shared=True).close()  # whose next epoch has a later number
    journal = Journal(tmp_path / "one", shared=True)
    for _ in range(3):
        journal.append(b"a")
    following = journal.follow()
    next(following)
    end = journal.next_lsn
    journal.close()
    with contextlib.ExitStack() as stack:
        if another:
            other = stack.enter_context(Journal(tmp_path / "other", shared=True))
            other.append_many([b"b"] * 100)
        assert journal.next_lsn == end
        assert all(record.body == b"a" for record in following)


def test_what_a_closed_journal_has_half_read_lets_nothing_go_that_others_read(
    tmp_path: Path,
) -> None:
    first = Journal(tmp_path / "log", shared=True)
    first.append_many([b"a"] * 3)
    half: Any = first.replay()
    next(half)
    witness = Journal(tmp_path / "log", shared=True)  # else the places would be made anew
    first.close()
    with witness, Journal(tmp_path / "log", shared=True) as second:
        log: Any = second._engine.log  # type: ignore[attr-defined]
        assert log.member == 0, "the place of the first one"
        reading: Any = second.replay()
        next(reading)
        half.close()
        assert log._members.first_held() == log.first_segment
        reading.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_lets_nothing_go_that_its_parent_reads(tmp_path: Path) -> None:
    with Journal(tmp_path / "log", shared=True) as journal:
        journal.append_many([b"a"] * 3)
        reading: Any = journal.replay()
        next(reading)
        child = os.fork()
        if not child:
            reading.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        log: Any = journal._engine.log  # type: ignore[attr-defined]
        assert log._members.first_held() == log.first_segment
        reading.close()
