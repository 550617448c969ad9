"""What every `RecordJournal` keeps, whatever its files look like.

In: an ``opener`` fixture of the subclass that opens (and opens again) the same journal on a file
system. Out: claims. Subclass `RecordJournalContract` and define the fixture.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from tallystick.errors import LogLockedError, TallystickError
from tallystick.roles import JournalRecord, RecordJournal, Ticket
from tests.roles.durability import becomes_done_by_start_flush

Opener = Callable[[], RecordJournal]


def ids(journal: RecordJournal) -> list[int]:
    return [record.record_id for record in journal.live_records()]


def reopened(opener: Opener, journal: RecordJournal) -> RecordJournal:
    journal.close()
    return opener()


class RecordJournalContract:
    """Claims about one implementation."""

    def test_added_record_is_there_after_reopening(self, opener: Opener) -> None:
        journal = opener()
        journal.add(1, b"body", 7).wait()
        journal = reopened(opener, journal)
        assert list(journal.live_records()) == [JournalRecord(1, 7, b"body")]
        journal.close()

    def test_record_is_durable_by_start_flush_alone(self, opener: Opener) -> None:
        journal = opener()
        assert becomes_done_by_start_flush(journal.add(1, b"body"))
        journal.close()

    def test_update_follows_its_add(self, opener: Opener) -> None:
        journal = opener()
        journal.add(1, b"first").wait()
        journal.update(1, b"second", -3).wait()
        journal = reopened(opener, journal)
        expected = [JournalRecord(1, 0, b"first"), JournalRecord(1, -3, b"second", update=True)]
        assert list(journal.live_records()) == expected
        journal.close()

    def test_deleted_record_is_gone(self, opener: Opener) -> None:
        journal = opener()
        journal.add(1, b"one").wait()
        journal.add(2, b"two").wait()
        journal.delete(1).wait()
        assert ids(journal) == [2]
        journal = reopened(opener, journal)
        assert ids(journal) == [2]
        journal.close()

    @pytest.mark.parametrize("number", [0, 1, (1 << 63) - 1])
    def test_extreme_ids_and_bodies_come_back(self, opener: Opener, number: int) -> None:
        journal = opener()
        journal.add(number, b"", 127).wait()
        journal.update(number, bytes(range(256)), -128).wait()
        journal = reopened(opener, journal)
        assert [record.body for record in journal.live_records()] == [b"", bytes(range(256))]
        journal.close()

    def test_transaction_counts_only_once_committed(self, opener: Opener) -> None:
        journal = opener()
        journal.add(1, b"old").wait()
        journal.add_in(10, 2, b"new")
        journal.delete_in(10, 1)
        assert ids(journal) == [1]
        journal.commit(10).wait()
        assert ids(journal) == [2]
        journal = reopened(opener, journal)
        assert ids(journal) == [2]
        journal.close()

    def test_rolled_back_transaction_leaves_nothing(self, opener: Opener) -> None:
        journal = opener()
        journal.add(1, b"old").wait()
        journal.add_in(10, 2, b"new")
        journal.update_in(10, 1, b"changed")
        journal.rollback(10).wait()
        journal = reopened(opener, journal)
        assert list(journal.live_records()) == [JournalRecord(1, 0, b"old")]
        journal.close()

    def test_unfinished_transaction_is_dropped_at_reopening(self, opener: Opener) -> None:
        journal = opener()
        journal.add_in(10, 2, b"new")
        journal.add(1, b"kept").wait()
        journal = reopened(opener, journal)
        assert ids(journal) == [1]
        journal.add_in(10, 3, b"the same number again")
        journal.commit(10).wait()
        journal = reopened(opener, journal)
        assert ids(journal) == [1, 3]
        journal.close()

    def test_prepared_transaction_waits_for_its_decision(self, opener: Opener) -> None:
        journal = opener()
        journal.add(1, b"old").wait()
        journal.add_in(10, 2, b"new", 5)
        journal.delete_in(10, 1)
        journal.prepare(10, b"xid").wait()
        journal = reopened(opener, journal)
        (one,) = journal.prepared()
        assert (one.transaction, one.deletes) == (10, (1,))
        assert one.records == (JournalRecord(2, 5, b"new"),)
        assert ids(journal) == [1]
        journal.commit(10).wait()
        journal = reopened(opener, journal)
        assert ids(journal) == [2]
        assert list(journal.prepared()) == []
        journal.close()

    def test_prepared_transaction_may_be_rolled_back_after_reopening(self, opener: Opener) -> None:
        journal = opener()
        journal.add_in(10, 2, b"new")
        journal.prepare(10).wait()
        journal = reopened(opener, journal)
        journal.rollback(10).wait()
        journal = reopened(opener, journal)
        assert ids(journal) == []
        assert list(journal.prepared()) == []
        journal.close()

    def test_many_records_survive_many_files(self, opener: Opener) -> None:
        journal = opener()
        tickets = [journal.add(number, b"x" * 100) for number in range(300)]
        tickets += [journal.delete(number) for number in range(0, 300, 3)]
        for ticket in tickets:
            ticket.wait()
        journal = reopened(opener, journal)
        assert sorted(ids(journal)) == [number for number in range(300) if number % 3]
        journal.close()

    def test_transaction_over_many_files_is_whole(self, opener: Opener) -> None:
        journal = opener()
        for number in range(200):
            journal.add_in(10, number, b"x" * 100)
        journal.commit(10).wait()
        journal = reopened(opener, journal)
        assert sorted(ids(journal)) == list(range(200))
        journal.close()

    def test_unknown_transaction_cannot_be_committed(self, opener: Opener) -> None:
        journal = opener()
        with pytest.raises(TallystickError):
            journal.commit(77).wait()
        journal.add(1, b"the journal goes on").wait()
        journal.close()

    def test_journal_is_owned_by_one(self, opener: Opener) -> None:
        journal = opener()
        with pytest.raises(LogLockedError):
            opener()
        journal.close()

    def test_closed_journal_refuses(self, opener: Opener) -> None:
        journal = opener()
        journal.close()
        with pytest.raises(TallystickError):
            journal.add(1, b"late").wait()

    def test_threads_share_it(self, opener: Opener) -> None:
        journal = opener()

        def work(base: int) -> None:
            for number in range(base, base + 20):
                journal.add(number, b"from a thread").wait()

        threads = [threading.Thread(target=work, args=(base,)) for base in range(0, 160, 20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        journal = reopened(opener, journal)
        assert sorted(ids(journal)) == list(range(160))
        journal.close()

    async def test_tasks_share_it(self, opener: Opener) -> None:
        journal = opener()

        async def wait_for(ticket: Ticket) -> int:
            return await ticket

        async def work() -> None:
            await asyncio.gather(*(wait_for(journal.add(n, b"from a task")) for n in range(50)))

        await work()
        journal = reopened(opener, journal)
        assert sorted(ids(journal)) == list(range(50))
        journal.close()
