"""The live log: acknowledged entries are there again; files roll over, go, and are carried."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import (
    BusyError,
    CorruptLogError,
    IncompleteLogError,
    LogClosedError,
    LogLockedError,
    LogUnreadableError,
    LogWriteError,
    RecordTooLargeError,
)
from tallystick.roles import Ticket
from tallystick.systems.cloudtran.format.entries import Operation, OperationKind
from tallystick.systems.cloudtran.live.log import BlockLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.cloudtran.reader import CloudtranReading
from tallystick.systems.protocol import LogSource, ReadOptions

TARGETS = ("orders", "billing")


def settings(**values: Any) -> LogSettings:
    defaults: dict[str, Any] = {"disk_block_size": 512, "on_incomplete": "replay"}
    return LogSettings(**defaults | values)


def operation(key: bytes = b"k", value: bytes | None = b"v") -> Operation:
    return Operation(None, OperationKind.UPDATE, "t", key, value)


def begin(log: BlockLog, value: bytes = b"v", reference: str = "") -> tuple[int, Ticket]:
    return log.persisting(TARGETS, [operation(value=value)], reference)


def reading(folder: Path) -> CloudtranReading:
    files = tuple(sorted(str(path) for path in folder.glob("*.ctlog")))
    return CloudtranReading(LogSource("cloudtran", str(folder), files), ReadOptions())


def pending(folder: Path) -> list[tuple[int, list[str]]]:
    report = reading(folder).verdict().engine["report_policy"]
    return [(one["txid"], one["targets"]) for one in report["pending"]]


def test_what_was_acknowledged_is_pending_after_reopening(tmp_path: Path) -> None:
    with BlockLog(str(tmp_path), settings()) as log:
        first, ticket = begin(log, reference="order-1")
        ticket.wait()
        second, ticket = begin(log)
        log.persisted(first, ["orders"])
        log.persisted(second, TARGETS)
        log.sync().wait()
    assert pending(tmp_path) == [(first, ["billing"])]
    with BlockLog(str(tmp_path), settings()) as log:
        ((entry, targets),) = log.pending()
    assert (entry.number, entry.reference, targets) == (
        first,
        "order-1",
        frozenset(("billing",)),
    )


def test_log_is_clean_to_the_reader_after_every_kind_of_use(tmp_path: Path) -> None:
    for _ in range(3):
        with BlockLog(str(tmp_path), settings(file_size_mb=1), disposer=None) as log:
            tickets = [begin(log, bytes(70_000)) for _ in range(40)]
            for number, ticket in tickets[::2]:
                ticket.wait()
                log.persisted(number, TARGETS)
    verdict = reading(tmp_path).verdict()
    assert verdict.engine["stop_policy"] == {"ok": True}
    assert verdict.engine["report_policy"]["warnings"] == []
    assert verdict.differences == ()
    assert len(verdict.engine["report_policy"]["pending"]) == 60


def test_numbers_and_serials_go_on_where_all_files_are_gone(tmp_path: Path) -> None:
    with BlockLog(str(tmp_path), settings()) as log:
        number, _ = begin(log)
        log.persisted(number, TARGETS)
    with BlockLog(str(tmp_path), settings()) as log:
        log.disposable()
    for path in tmp_path.glob("*.ctlog"):
        path.unlink()
    with BlockLog(str(tmp_path), settings()) as log:
        assert begin(log)[0] == number + 1
    assert [file.identity for file in reading(tmp_path).files()] == [2]


def test_pending_transactions_refuse_a_normal_start_and_are_named(tmp_path: Path) -> None:
    with BlockLog(str(tmp_path), settings()) as log:
        number, _ = begin(log)
    with pytest.raises(IncompleteLogError, match=f": {number}"):
        BlockLog(str(tmp_path), settings(on_incomplete="fail"))
    BlockLog(str(tmp_path), settings()).close()


def test_second_opener_is_refused_until_the_first_has_closed(tmp_path: Path) -> None:
    log = BlockLog(str(tmp_path), settings())
    with pytest.raises(LogLockedError):
        BlockLog(str(tmp_path), settings())
    log.close()
    BlockLog(str(tmp_path), settings()).close()


def test_damaged_block_stops_the_start_and_names_its_suspects(tmp_path: Path) -> None:
    with BlockLog(str(tmp_path), settings()) as log:
        for _ in range(2):
            begin(log, bytes(100))[1].wait()
    (path,) = tmp_path.glob("*.ctlog")
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLogError, match="persisting 1"):
        BlockLog(str(tmp_path), settings())
    with BlockLog(str(tmp_path), settings(on_damage="report")) as log:
        assert [entry.number for entry, _ in log.pending()] == [2]
        assert log.disposable() == []


def test_oldest_file_goes_when_the_last_mark_is_durable_and_not_before(tmp_path: Path) -> None:
    with BlockLog(str(tmp_path), settings(file_size_mb=1), disposer=None) as log:
        numbers = []
        while log.files < 2:
            number, ticket = begin(log, bytes(90_000))
            ticket.wait()
            numbers.append(number)
        for number in numbers:
            log.persisted(number, TARGETS)
        assert log.disposable() == []
        log.sync().wait()
        assert [Path(one).name[9:19] for one in log.disposable()] == ["0000000001"]


def test_later_redundant_files_wait_for_the_oldest(tmp_path: Path) -> None:
    with BlockLog(str(tmp_path), settings(file_size_mb=1), disposer=None) as log:
        stuck, _ = begin(log)
        while log.files < 4:
            number, ticket = begin(log, bytes(200_000))
            ticket.wait()
            log.persisted(number, TARGETS)
        log.sync().wait()
        assert log.disposable() == []
        log.persisted(stuck, TARGETS)
        log.sync().wait()
        assert len(log.disposable()) == 3


def test_stuck_transaction_is_carried_forward_and_replayed_once(tmp_path: Path) -> None:
    chosen = settings(file_size_mb=1, carry_forward_files=3)
    with BlockLog(str(tmp_path), chosen, disposer=None) as log:
        stuck, _ = begin(log, reference="stuck")
        while log.files < 4:
            number, ticket = begin(log, bytes(200_000))
            ticket.wait()
            log.persisted(number, TARGETS)
        log.disposable()
        log.sync().wait()
        gone = log.disposable()
        assert len(gone) == 3
        Path(gone[0]).unlink()
        log.disposed(gone[0])
    assert [number for number, _ in pending(tmp_path)] == [stuck]
    with BlockLog(str(tmp_path), chosen, disposer=None) as log:
        assert [entry.reference for entry, _ in log.pending()] == ["stuck"]


def test_a_transaction_that_is_carried_forward_keeps_the_targets_that_hold_it(
    tmp_path: Path,
) -> None:
    chosen = settings(carry_forward_files=2)
    with BlockLog(str(tmp_path), chosen, disposer=None) as log:
        first, ticket = begin(log)
        ticket.wait()
        log.persisted(first, ["orders"])
        log.sync().wait()
        log._writer._series._roll()
        second, ticket = begin(log)
        ticket.wait()
        assert log.disposable() == []
        log.sync().wait()
        for path in log.disposable():
            Path(path).unlink()
            log.disposed(path)
        assert log.files == 1
    left = [(first, ["billing"]), (second, ["billing", "orders"])]
    assert [(number, sorted(targets)) for number, targets in pending(tmp_path)] == left
    with BlockLog(str(tmp_path), chosen, disposer=None) as log:
        assert [(one.number, sorted(targets)) for one, targets in log.pending()] == left


@pytest.mark.parametrize("module", ["cloudtran.live.debounced_thread", "disposal.worker"])
def test_a_log_whose_thread_cannot_start_is_closed_again(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: threading.Thread) -> None:
        raise OSError(errno.EAGAIN, "no other thread can be started")

    place = "systems." * module.startswith("cloudtran") + module
    monkeypatch.setattr(f"tallystick.{place}.start_thread", none_left)
    with pytest.raises(LogUnreadableError) as raised:
        BlockLog(str(tmp_path), settings())
    monkeypatch.undo()
    BlockLog(str(tmp_path), settings()).close()
    assert "thread" in str(raised.value)  # which keeps what it was raised in until here


def test_default_disposer_deletes_redundant_files_while_running(tmp_path: Path) -> None:
    with BlockLog(str(tmp_path), settings(file_size_mb=1)) as log:
        for _ in range(40):
            number, ticket = begin(log, bytes(200_000))
            ticket.wait()
            log.persisted(number, TARGETS)
    assert len(list(tmp_path.glob("*.ctlog"))) <= 2


def test_discard_is_durable_and_ends_the_matter(tmp_path: Path) -> None:
    with BlockLog(str(tmp_path), settings()) as log:
        number, _ = begin(log)
        log.discard(number).wait()
        with pytest.raises(KeyError):
            log.discard(number)
    assert pending(tmp_path) == []
    (one,) = reading(tmp_path).transactions()
    assert one.attributes["discarded"] == list(TARGETS)


def test_group_is_cut_at_the_write_size_and_a_larger_entry_stands_alone(tmp_path: Path) -> None:
    chosen = settings(max_write_size=4096, max_transaction_size=100_000)
    with BlockLog(str(tmp_path), chosen) as log:
        for size in (1000, 1000, 1000, 1000, 50_000, 10):
            _, ticket = begin(log, bytes(size))
        with pytest.raises(RecordTooLargeError):
            begin(log, bytes(100_000))
        ticket.wait()
    blocks = [one.block for one in reading(tmp_path).occurrences()]
    assert [len(block.entries) for block in blocks] == [3, 1, 1, 1, 0]
    assert [block.length for block in blocks][2] > 50_000
    assert all(block.length <= 4096 for block in blocks if len(block.entries) > 1)


@pytest.mark.parametrize("threads", [1, 3, 16])
def test_number_of_workers_leaves_the_bytes_alone(tmp_path: Path, threads: int) -> None:
    def write(folder: Path, count: int) -> bytes:
        chosen = settings(max_write_size=4096, compress=True, thread_count=count)
        with BlockLog(str(folder), chosen, clock=lambda: 1372672800.0) as log:
            for index in range(200):
                begin(log, bytes([index]) * 500)
            log.sync().wait()
        (path,) = folder.glob("*.ctlog")
        return path.read_bytes()

    assert write(tmp_path / "a", 1) == write(tmp_path / "b", threads)
    assert len(pending(tmp_path / "b")) == 200


def test_concurrent_commits_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    def work(log: BlockLog) -> None:
        for _ in range(50):
            begin(log)[1].wait(30)

    with BlockLog(str(tmp_path), settings()) as log:
        threads = [threading.Thread(target=work, args=(log,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    numbers = [record.transaction for record in reading(tmp_path).records()]
    assert numbers == list(range(1, 801))


def test_log_after_commit_returns_before_any_write(tmp_path: Path) -> None:
    chosen = settings(log_before_commit=False, log_after_commit=True, persisted_flush_millis=60_000)
    log = BlockLog(str(tmp_path), chosen)
    _, ticket = begin(log)
    assert ticket.done()
    assert list(tmp_path.glob("*.ctlog")) == []
    log.close()
    assert len(pending(tmp_path)) == 1


def test_marks_are_written_after_a_while_though_nobody_commits(tmp_path: Path) -> None:
    with BlockLog(str(tmp_path), settings(persisted_flush_millis=1), disposer=None) as log:
        number, ticket = begin(log)
        ticket.wait()
        log.persisted(number, TARGETS)
        deadline = threading.Event()
        for _ in range(500):
            if not log.pending():
                break
            deadline.wait(0.01)
        assert log.pending() == []


def test_nearly_full_disk_refuses_commits_but_not_marks(tmp_path: Path) -> None:
    room = [1 << 40]
    with BlockLog(str(tmp_path), settings(), disposer=None, free_bytes=lambda: room[0]) as log:
        number, ticket = begin(log)
        ticket.wait()
        room[0] = 0
        log.disk_space.check_again()
        with pytest.raises(BusyError):
            begin(log)
        log.persisted(number, TARGETS)
        log.sync().wait()
        assert log.pending() == []
        room[0] = 1 << 40
        log.disk_space.check_again()
        begin(log)[1].wait()


@pytest.mark.parametrize(
    ("targets", "operations", "reference"),
    [
        ((), [], ""),
        (("",), [], ""),
        (("x" * 256,), [], ""),
        (("a",), [Operation(1, OperationKind.INSERT, "t", b"", None)], ""),
        (("a",), [Operation(None, OperationKind.INSERT, "t" * 65536, b"", None)], ""),
        (("a",), [], "r" * 65536),
        (("a",), [], "\ud800"),
    ],
)
def test_what_the_form_cannot_hold_is_refused_and_the_log_goes_on(
    tmp_path: Path, targets: Sequence[str], operations: Sequence[Operation], reference: str
) -> None:
    with BlockLog(str(tmp_path), settings()) as log:
        with pytest.raises(LogWriteError):
            log.persisting(targets, operations, reference)
        begin(log)[1].wait()
    assert len(pending(tmp_path)) == 1


def test_closed_log_refuses_everything(tmp_path: Path) -> None:
    log = BlockLog(str(tmp_path), settings())
    number, _ = begin(log)
    log.close()
    log.close()
    with pytest.raises(LogClosedError):
        begin(log)
    with pytest.raises(LogClosedError):
        log.persisted(number, TARGETS)
