"""Callers that are cancelled, targets that misbehave, threads that end; limits and operators."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import (
    BusyError,
    CorruptLogError,
    IncompleteLogError,
    LogClosedError,
    TransactionUsageError,
)
from tallystick.roles import PersistEntry, PersistLog
from tallystick.services.write_behind import TargetDownError, WriteBehind
from tallystick.services.write_behind.targets import adapters
from tests.services.write_behind.kit import SYSTEMS, Recorder, put, quick, small_log


def service(path: Path, targets: dict[str, Any], **values: Any) -> WriteBehind:
    defaults: dict[str, Any] = {"settings": quick()}
    return WriteBehind(path, targets, **defaults | values)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


# -- callers -----------------------------------------------------------------------------


@pytest.mark.parametrize("system", SYSTEMS)
async def test_task_cancelled_at_a_limit_does_not_block_others(tmp_path: Path, system: str) -> None:
    one = Recorder()
    one.gate.clear()

    async def work(behind: WriteBehind) -> None:
        await behind.commit_async([put(b"a")])
        waiting = asyncio.create_task(behind.commit_async([put(b"b")]))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        one.gate.set()

    settings = quick(backlog_max=1, busy_timeout=5.0)
    with service(tmp_path, {"one": one}, system=system, settings=settings) as behind:
        await work(behind)
        behind.commit([put(b"c")])
        assert behind.drain(10)
    assert one.numbers[-1] == len(one.numbers)  # the cancelled one is there, or never was


@pytest.mark.parametrize("system", SYSTEMS)
async def test_tasks_cancelled_while_they_wait_for_the_disk_do_not_block_others(
    tmp_path: Path, system: str
) -> None:
    one = Recorder()

    async def work(behind: WriteBehind) -> None:
        tasks = [asyncio.create_task(behind.commit_async([put(b"%d" % n)])) for n in range(40)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with service(tmp_path, {"one": one}, system=system) as behind:
        await work(behind)
        last = behind.commit([put(b"last")])
        assert behind.drain(10)
    assert one.numbers == list(range(1, last + 1))


async def test_task_need_not_wait_for_the_disk_either(tmp_path: Path) -> None:
    one = Recorder()
    with service(tmp_path, {"one": one}, settings=quick(wait_durable=False)) as behind:
        assert await behind.commit_async([put(b"a")]) == 1
        assert behind.drain(5)
    assert one.numbers == [1]


@pytest.mark.parametrize("system", SYSTEMS)
def test_close_during_commits_loses_none_that_was_acknowledged(tmp_path: Path, system: str) -> None:
    for _ in range(5):
        one = Recorder()
        behind = service(tmp_path, {"one": one}, system=system, on_incomplete="replay")
        acknowledged: list[int] = []

        def work(behind: WriteBehind, acknowledged: list[int]) -> None:
            with pytest.raises(LogClosedError):
                while True:
                    acknowledged.append(behind.commit([put(b"%d" % threading.get_ident())]))

        threads = [threading.Thread(target=work, args=(behind, acknowledged)) for _ in range(8)]
        for thread in threads:
            thread.start()
        until(lambda: len(acknowledged) > 50)  # noqa: B023 - called before the loop goes on
        behind.close()
        for thread in threads:
            thread.join()
        assert sorted(one.numbers) == sorted(acknowledged)


def test_operation_for_a_target_that_the_transaction_does_not_name_is_refused(
    tmp_path: Path,
) -> None:
    with service(tmp_path, {"one": Recorder(), "two": Recorder()}) as behind:
        with pytest.raises(TransactionUsageError, match="two"):
            behind.commit([put(b"k", target="two")], targets=["one"])
        assert behind.backlog.count == 0


def test_forked_child_refuses_work_and_its_end_does_not_touch_the_parent(tmp_path: Path) -> None:
    one = Recorder()
    with service(tmp_path, {"one": one}) as behind:
        behind.commit([put(b"a")])
        child = os.fork()
        if child == 0:
            code = 1
            try:
                behind.commit([put(b"b")])
            except LogClosedError:
                behind.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        behind.commit([put(b"c")])
    assert one.numbers == [1, 2]


# -- targets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]
)
def test_target_that_raises_system_exit_has_only_failed(
    tmp_path: Path, error: BaseException
) -> None:
    one = Recorder()

    def fail(entry: PersistEntry) -> None:
        if entry.operations[0].key == b"bad":
            raise error

    one.fail = fail
    with service(tmp_path, {"one": one}) as behind:
        bad = behind.commit([put(b"bad")])
        behind.commit([put(b"good")])
        until(lambda: behind.statistics.set_aside == 1 and one.numbers == [2])
        status = behind.find(bad)
        assert status is not None
        assert type(error).__name__ in status.targets[0].error
        behind.discard(bad)


@pytest.mark.parametrize("where", ["coroutine", "task"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_coroutine_that_raises_system_exit_has_only_failed(
    tmp_path: Path, error: BaseException, where: str
) -> None:
    applied = []

    async def fail() -> None:
        raise error

    async def target(entry: PersistEntry) -> None:
        if entry.operations[0].key == b"bad":
            await (fail() if where == "coroutine" else asyncio.create_task(fail()))
        applied.append(entry.number)

    with service(tmp_path, {"one": target}) as behind:
        bad = behind.commit([put(b"bad")])
        behind.commit([put(b"good")])
        until(lambda: behind.statistics.set_aside == 1 and applied == [2])
        behind.discard(bad)


def test_close_waits_not_for_ever_for_a_coroutine_that_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "CANCEL_SECONDS", 0.1)
    begun, go_on = threading.Event(), threading.Event()

    async def target(_: PersistEntry) -> None:
        begun.set()
        go_on.wait(60)  # as a driver does that blocks

    with service(tmp_path, {"one": target}, settings=quick(close_timeout=0.1)) as behind:
        behind.commit([put(b"k")])
        assert begun.wait(60)
    go_on.set()


def test_many_attempts_do_not_overflow_their_delay(tmp_path: Path) -> None:
    one = Recorder()

    def fail(_: PersistEntry) -> None:
        raise ValueError

    one.fail = fail
    settings = quick(retry_seconds=1e-9, retry_seconds_max=1e-9, attempts_max=1_500)
    with service(tmp_path, {"one": one}, settings=settings) as behind:
        behind.commit([put(b"k")])
        until(lambda: behind.statistics.set_aside == 1)
        behind.discard(1)


class Forgetful:
    """A log whose calls of one method fail with an error that is not a `TallystickError`."""

    def __init__(self, log: PersistLog, failing: str) -> None:
        self._log = log
        self._failing = failing

    def __getattr__(self, name: str) -> Any:
        if name == self._failing:
            raise RuntimeError("a bug")
        return getattr(self._log, name)


def test_worker_that_fails_stops_the_service_with_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = Recorder()
    log: Any = Forgetful(small_log("tally", str(tmp_path)), "persisted_all")
    behind = service(tmp_path, {"one": one}, log=log)
    behind.commit([put(b"a")])
    with pytest.raises(LogClosedError, match="a bug"):
        while True:
            behind.commit([put(b"b")])
    behind.close(1)
    assert "gets nothing any more" in caplog.text
    with service(tmp_path, {"one": one}, on_incomplete="replay") as behind:
        assert behind.drain(5)
    assert set(one.numbers) == set(range(1, max(one.numbers) + 1))


def test_sequencer_that_fails_stops_the_service_with_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = service(tmp_path, {"one": Recorder()})

    def broken(_: Sequence[PersistEntry]) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(behind._workers, "hand_over", broken)
    with pytest.raises(LogClosedError, match="a bug"):
        while True:
            behind.commit([put(b"b")])
    behind.close(0.1)
    assert "write-behind has stopped" in caplog.text


class Unopenable(Recorder):
    """A target that fails when it is opened."""

    def open(self, log_id: str) -> None:
        raise OSError(f"no {log_id}")


class Closing(Recorder):
    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("disposer", ["no.such.disposer", "os.sep", "nothing"])
def test_disposer_that_cannot_be_found_leaves_nothing_open(tmp_path: Path, disposer: str) -> None:
    with pytest.raises(ValueError, match=r"disposer|dispose"):
        service(tmp_path, {"one": Recorder()}, disposer=disposer)
    service(tmp_path, {"one": Recorder()}).close()


def test_target_that_cannot_be_opened_leaves_nothing_open(tmp_path: Path) -> None:
    first = Closing()
    with pytest.raises(OSError, match="no "):
        service(tmp_path, {"first": first, "bad": Unopenable()})
    assert first.closed
    service(tmp_path, {"first": first}).close()


def test_a_target_that_cannot_be_closed_leaves_no_other_open(tmp_path: Path) -> None:
    class Unclosable(Recorder):
        def close(self) -> None:
            raise OSError("told to")

    last = Closing()
    behind = service(tmp_path, {"first": Unclosable(), "last": last})
    with pytest.raises(OSError, match="told to"):
        behind.close()
    assert last.closed


def test_coroutine_that_hangs_is_cancelled_at_the_end(tmp_path: Path) -> None:
    ended = threading.Event()

    async def hang(_: PersistEntry) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    with service(tmp_path, {"one": hang}, settings=quick(close_timeout=0.1)) as behind:
        behind.commit([put(b"k")])
    assert ended.is_set()
    with pytest.raises(IncompleteLogError, match="1"):
        service(tmp_path, {"one": hang})


# -- limits ------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"backlog_max": 10}, {"backlog_bytes_max": 2_000}])
def test_limits_hold_under_64_callers(tmp_path: Path, limits: dict[str, int]) -> None:
    one = Recorder(batch_max=3)
    over: list[object] = []
    refused: list[BusyError] = []
    numbers: list[int] = []

    def fail(_: PersistEntry) -> None:
        size = behind.backlog
        if size.count > limits.get("backlog_max", 1 << 60):
            over.append(size)
        if size.bytes > limits.get("backlog_bytes_max", 1 << 60):
            over.append(size)
        time.sleep(0.0005)

    one.fail = fail

    def work(caller: int) -> None:
        for index in range(6):
            try:
                numbers.append(behind.commit([put(b"%d-%d" % (caller, index), bytes(20))]))
            except BusyError as error:
                refused.append(error)

    settings = quick(busy_timeout=0.02, **limits)
    with service(tmp_path, {"one": one}, settings=settings) as behind:
        threads = [threading.Thread(target=work, args=(caller,)) for caller in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert behind.drain(20)
        assert (behind.backlog.count, behind.backlog.bytes) == (0, 0)
        assert behind.statistics.busy == len(refused) > 0
    assert not over
    assert sorted(one.numbers) == sorted(numbers)
    assert len(numbers) + len(refused) == 64 * 6


def test_age_limit_holds_for_all_but_what_waits_for_an_operator(tmp_path: Path) -> None:
    one = Recorder()

    def fail(entry: PersistEntry) -> None:
        if entry.operations[0].value == b"poison":
            raise ValueError("bad value")

    one.fail = fail
    settings = quick(backlog_age_seconds_max=0.2, attempts_max=1)
    with service(tmp_path, {"one": one}, settings=settings) as behind:
        poison = behind.commit([put(b"k", b"poison")])
        behind.commit([put(b"k"), put(b"l")])
        until(lambda: behind.statistics.set_aside == 1)
        behind.commit([put(b"l"), put(b"m")])
        time.sleep(0.3)
        behind.commit([put(b"other")])  # old ones are there, but they wait for an operator
        until(lambda: [status.number for status in behind.pending()] == [1, 2, 3])
        assert behind.backlog.age_seconds > 0.2
        one.gate.clear()
        behind.retry(poison)
        with pytest.raises(BusyError, match="oldest"):
            behind.commit([put(b"other")])
        one.gate.set()
        until(lambda: behind.statistics.set_aside == 2)
        behind.discard(poison)
        assert behind.drain(5)
    assert sorted(one.numbers) == [2, 3, 4]
    assert one.numbers.index(2) < one.numbers.index(3)


def test_age_is_counted_over_restarts_and_a_clock_set_back_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Recorder()
    one.fail = _down
    settings = quick(close_timeout=0.0)
    behind = service(tmp_path, {"one": one}, settings=settings)
    behind.commit([put(b"k")])
    behind.close()
    now = time.time
    for hours, expected in ((1, 3600.0), (-1, 0.0)):
        monkeypatch.setattr(time, "time", lambda hours=hours: now() + 3600 * hours)
        with service(tmp_path, {"one": one}, on_incomplete="hold", settings=settings) as behind:
            assert expected <= behind.backlog.age_seconds < expected + 600


def _down(_: PersistEntry) -> None:
    raise TargetDownError("away")


# -- operators ---------------------------------------------------------------------------


def _leave(path: Path, targets: Collection[str], count: int = 2) -> None:
    made: dict[str, Any] = {}
    for name in targets:
        made[name] = Recorder()
        made[name].fail = _down
    with service(path, made, settings=quick(close_timeout=0.0)) as behind:
        for index in range(count):
            behind.commit([put(b"%d" % index)], f"order-{index}")


def test_transactions_for_an_unknown_target_can_be_listed_and_discarded(tmp_path: Path) -> None:
    _leave(tmp_path, ["gone", "one"])
    one = Recorder()
    with service(tmp_path, {"one": one}, on_incomplete="hold") as behind:
        states = [
            [(target.target, target.state) for target in status.targets]
            for status in behind.pending()
        ]
        assert states == [[("gone", "unknown"), ("one", "queued")]] * 2
        with pytest.raises(IncompleteLogError, match="gone"):
            behind.replay(1)
        assert one.numbers == []
        behind.discard(1)
        behind.discard(2)
        assert behind.replay(1) == []
    service(tmp_path, {"one": one}).close()


def test_replay_with_a_timeout_retries_an_unreachable_target(
    tmp_path: Path,
) -> None:
    _leave(tmp_path, ["one"])
    one, failures = Recorder(), math.inf

    def fail(_: PersistEntry) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise ConnectionError("not yet")

    one.fail = fail
    with service(tmp_path, {"one": one}, on_incomplete="hold") as behind:
        assert len(behind.replay()) == 2  # without a timeout it is tried once
    with service(tmp_path, {"one": one}, on_incomplete="hold") as behind:
        failures = 3
        assert behind.replay(60) == []
    assert one.numbers == [1, 2]


def test_discarded_transaction_is_not_applied_even_if_it_was_handed_over(tmp_path: Path) -> None:
    one = Recorder()
    with service(tmp_path, {"one": one}) as behind:
        for index in range(30):
            number = behind.commit([put(b"%d" % index)])
            if index % 3 == 0:
                try:
                    behind.discard(number)
                except KeyError:
                    continue  # it was applied already
        assert behind.drain(5)
        assert behind.backlog.bytes == 0
    assert len(one.numbers) == len(set(one.numbers))


def test_unreachable_target_is_logged_once_for_each_try(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = Recorder()
    one.fail = _down
    with (
        caplog.at_level(logging.WARNING, "tallystick.write_behind"),
        service(tmp_path, {"one": one}, settings=quick(close_timeout=0.0)) as behind,
    ):
        behind.commit([put(b"k")])
        until(lambda: behind.statistics.retries >= 3)
    assert caplog.text.count("cannot be reached") >= 3


@pytest.mark.parametrize("content", [b"", b"one two three", b"x" * 1000, b"\n\n"])
def test_damaged_identity_is_reported_and_not_replaced(tmp_path: Path, content: bytes) -> None:
    service(tmp_path, {"one": Recorder()}).close()
    identity = tmp_path / "identity"
    kept = identity.read_bytes()
    identity.write_bytes(content)
    with pytest.raises(CorruptLogError, match="identity"):
        service(tmp_path, {"one": Recorder()})
    assert identity.read_bytes() == content
    identity.write_bytes(kept)
    service(tmp_path, {"one": Recorder()}).close()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_service_whose_log_is_gone_does_not_start_with_an_empty_one(
    tmp_path: Path, system: str
) -> None:
    service(tmp_path, {"one": Recorder()}, system=system).close()
    log = tmp_path / "log"
    shutil.rmtree(log)
    for left in ("", ".", "lost+found"):  # nothing, a volume that was not mounted, an empty one
        (log / left).mkdir(exist_ok=True) if left else None
        with pytest.raises(CorruptLogError, match="log of this service is missing"):
            service(tmp_path, {"one": Recorder()}, system=system)


@pytest.mark.parametrize("system", SYSTEMS)
def test_limits_hold_while_one_target_flaps_and_one_is_unreachable(
    tmp_path: Path, system: str
) -> None:
    flapping, away, back = Recorder(batch_max=20), Recorder(), threading.Event()
    calls = iter(range(1_000_000))

    def flap(_: PersistEntry) -> None:
        if next(calls) % 17 == 0:
            raise ConnectionError("flapping")

    def stay_away(_: PersistEntry) -> None:
        if not back.is_set():
            raise TargetDownError("away")

    flapping.fail, away.fail = flap, stay_away
    targets = {"flapping": flapping, "away": away}
    committed: list[int] = []

    def work(caller: int) -> None:
        while len(committed) < 400:
            try:
                committed.append(behind.commit([put(b"%d" % (caller % 5), bytes(10))]))
            except BusyError:
                back.set()  # it is reachable again once the limit was reached

    settings = quick(backlog_max=100, busy_timeout=0.2)
    with service(tmp_path, targets, system=system, settings=settings) as behind:
        threads = [threading.Thread(target=work, args=(caller,)) for caller in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert behind.drain(20)
        assert behind.statistics.set_aside == 0
        assert behind.statistics.busy > 0
    for target in targets.values():
        assert sorted(target.numbers) == sorted(committed)
        for key in range(5):
            own = [one.number for one in target.applied if one.operations[0].key == b"%d" % key]
            assert own == sorted(own)
