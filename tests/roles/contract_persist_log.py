"""What every persist log must do, whatever system it stands on.

Derive a test class from `PersistLogContract` and give it `open_log`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tallystick.errors import LogClosedError, LogLockedError
from tallystick.roles import Operation, OperationCode, PersistLog
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.testing import RecordingFileSystem, check_recovery
from tests.roles.durability import becomes_done_by_start_flush

TARGETS = ("orders", "billing")
BILLING = frozenset(("billing",))
OPERATIONS = (
    Operation(OperationCode.INSERT, "t", b"k1", b"v1"),
    Operation(OperationCode.UPDATE, "größe", b"", b"", target="billing"),
    Operation(OperationCode.DELETE, "t", b"k0"),
    Operation(OperationCode.OPAQUE, "", b"\x00\xff", b"x" * 5000),
)


class PersistLogContract:
    """The contract; each test opens logs below a folder of its own."""

    def open_log(self, folder: str, fs: FileSystem = LOCAL) -> PersistLog:
        """A persist log with small files, opened or created in ``folder``."""
        raise NotImplementedError

    def test_entry_comes_back_as_it_was_given(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        number, ticket = log.persisting(TARGETS, OPERATIONS, "order-7")
        ticket.wait()
        log.close()
        log = self.open_log(str(tmp_path / "log"))
        ((entry, pending),) = log.pending()
        log.close()
        assert (entry.number, entry.reference) == (number, "order-7")
        assert (entry.targets, entry.operations) == (TARGETS, OPERATIONS)
        assert pending == frozenset(TARGETS)
        assert entry.time > 1_500_000_000_000_000

    def test_entry_is_durable_by_start_flush_alone(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        _, ticket = log.persisting(TARGETS, OPERATIONS)
        assert becomes_done_by_start_flush(ticket)
        log.close()

    def test_numbers_grow_and_are_not_reused_after_reopening(self, tmp_path: Path) -> None:
        numbers = []
        for _ in range(3):
            log = self.open_log(str(tmp_path / "log"))
            for _ in range(3):
                number, ticket = log.persisting(("a",), OPERATIONS[:1])
                ticket.wait()
                log.persisted(number, ("a",))
                numbers.append(number)
            log.close()
        assert numbers == sorted(set(numbers))

    def test_targets_are_marked_one_by_one(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        first, _ = log.persisting(TARGETS, OPERATIONS)
        second, _ = log.persisting(TARGETS, OPERATIONS)
        log.persisted(first, ("orders",))
        log.persisted(second, ("billing",))
        log.persisted(second, ("orders",))
        log.sync().wait()
        assert [(entry.number, left) for entry, left in log.pending()] == [(first, BILLING)]
        log.close()
        log = self.open_log(str(tmp_path / "log"))
        assert [(entry.number, left) for entry, left in log.pending()] == [(first, BILLING)]
        log.close()

    def test_many_are_marked_at_once_and_the_lowest_that_is_left_is_known(
        self, tmp_path: Path
    ) -> None:
        log = self.open_log(str(tmp_path / "log"))
        numbers = [log.persisting(TARGETS, OPERATIONS[:1])[0] for _ in range(600)]
        log.persisted_all(numbers[:500], TARGETS)
        log.persisted_all(numbers, ("orders",))
        log.sync().wait()
        assert log.lowest_pending() == numbers[500]
        log.close()
        log = self.open_log(str(tmp_path / "log"))
        assert [entry.number for entry, _ in log.pending()] == numbers[500:]
        log.persisted_all(numbers[500:], BILLING)
        log.sync().wait()
        assert log.lowest_pending() is None
        log.close()

    def test_mark_of_an_unknown_transaction_is_let_be(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.persisted(99, ("a",))
        log.sync().wait()
        log.close()

    def test_mark_of_a_number_that_none_has_got_leaves_the_next_one_as_it_is(
        self, tmp_path: Path
    ) -> None:
        log = self.open_log(str(tmp_path / "log"))
        number, ticket = log.persisting(("a",), ())
        ticket.wait()
        log.persisted_all((number + 1, number, (1 << 62)), ("a",))
        log.sync().wait()
        assert log.last_number == number
        log.close()
        log = self.open_log(str(tmp_path / "log"))
        assert log.last_number == number
        later, ticket = log.persisting(("a",), ())
        ticket.wait()
        assert later == number + 1
        assert [entry.number for entry, _ in log.pending()] == [later]
        log.close()

    def test_discard_is_durable_and_needs_a_pending_transaction(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        number, ticket = log.persisting(TARGETS, OPERATIONS)
        ticket.wait()
        log.discard(number).wait()
        with pytest.raises(KeyError):
            log.discard(number + 1000)
        log.close()
        log = self.open_log(str(tmp_path / "log"))
        assert list(log.pending()) == []
        log.close()

    async def test_tasks_can_await_tickets(self, tmp_path: Path) -> None:
        async def commit(log: PersistLog) -> int:
            number, ticket = log.persisting(TARGETS, OPERATIONS)
            await ticket
            return number

        async def commit_many(log: PersistLog) -> list[int]:
            return list(await asyncio.gather(*(commit(log) for _ in range(20))))

        log = self.open_log(str(tmp_path / "log"))
        numbers = await commit_many(log)
        assert [entry.number for entry, _ in log.pending()] == sorted(numbers)
        log.close()

    def test_only_old_files_whose_work_is_done_may_go(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        body = (Operation(OperationCode.OPAQUE, "t", b"k", bytes(100_000)),)
        numbers = []
        for _ in range(60):
            number, ticket = log.persisting(("a",), body)
            ticket.wait()
            numbers.append(number)
        assert log.disposable() == []
        for number in numbers[1:]:
            log.persisted(number, ("a",))
        log.sync().wait()
        assert log.disposable() == []
        log.persisted(numbers[0], ("a",))
        log.sync().wait()
        gone = list(log.disposable())
        assert gone
        for path in gone:
            Path(path).unlink()
            log.disposed(path)
        assert log.disposable() == []
        number, ticket = log.persisting(("a",), body)
        ticket.wait()
        log.close()
        log = self.open_log(str(tmp_path / "log"))
        assert [entry.number for entry, _ in log.pending()] == [number]
        log.close()

    def test_second_owner_is_refused(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        with pytest.raises(LogLockedError):
            self.open_log(str(tmp_path / "log"))
        log.close()

    def test_closed_log_refuses_work(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.close()
        with pytest.raises(LogClosedError):
            log.persisting(TARGETS, OPERATIONS)

    @pytest.mark.long
    def test_every_crash_keeps_what_was_acknowledged(self) -> None:
        recording = RecordingFileSystem()
        log = self.open_log("/log", recording)
        for index in range(4):
            recording.submitted(index)
            _, ticket = log.persisting(("a",), (), reference=str(index))
            ticket.wait()
            recording.acknowledged(index)
        log.close()

        def recover(fs: FileSystem) -> list[int]:
            log = self.open_log("/log", fs)
            found = [int(entry.reference) for entry, _ in log.pending()]
            log.close()
            return found

        check_recovery(recording, recover, limit=200, again=20)

    def test_no_crash_brings_back_what_was_marked_durably(self) -> None:
        recording = RecordingFileSystem()
        log = self.open_log("/log", recording)
        done: dict[int, int] = {}
        for _ in range(4):
            number, ticket = log.persisting(("a",), ())
            ticket.wait()
            log.persisted(number, ("a",))
            log.sync().wait()
            recording.submitted(number)
            recording.acknowledged(number)
            done[number] = recording.points
        log.close()
        for state in recording.crash_states(limit=50):
            log = self.open_log("/log", state.fs())
            pending = {entry.number for entry, _ in log.pending()}
            log.close()
            assert not pending & set(state.acknowledged), state.describe()
