"""The service: commits, order, failures, limits, replay, operators."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import (
    BusyError,
    IncompleteLogError,
    LogClosedError,
    TransactionUsageError,
)
from tallystick.roles import PersistEntry
from tallystick.services.write_behind import TargetDownError, WriteBehind
from tests.services.write_behind.kit import SYSTEMS, Recorder, put, quick


def service(path: Path, targets: dict[str, Any], **values: Any) -> WriteBehind:
    defaults: dict[str, Any] = {"system": "cloudtran", "settings": quick()}
    return WriteBehind(path, targets, **defaults | values)


def test_committed_transaction_reaches_every_target(tmp_path: Path) -> None:
    one, two = Recorder(), Recorder()
    with service(tmp_path, {"one": one, "two": two}) as behind:
        with behind.begin("order-7") as tx:
            tx.insert("t", {"id": 7}, {"state": "new"})
            tx.update("t", {"id": 7}, {"state": "paid"}, target="two")
        assert behind.drain(5)
    assert [entry.reference for entry in one.applied] == ["order-7"]
    assert [len(entry.operations) for entry in (*one.applied, *two.applied)] == [1, 2]
    assert one.applied[0].operations[0].key == b'{"id":7}'


def test_block_that_raises_commits_nothing(tmp_path: Path) -> None:
    one = Recorder()
    with service(tmp_path, {"one": one}) as behind:
        with pytest.raises(ZeroDivisionError), behind.begin() as tx:
            tx.insert("t", b"k", b"v")
            raise ZeroDivisionError
        assert behind.backlog.count == 0
    assert one.applied == []


def test_transaction_goes_only_to_the_targets_it_names(tmp_path: Path) -> None:
    one, two = Recorder(), Recorder()
    with service(tmp_path, {"one": one, "two": two}) as behind:
        behind.commit([put(b"k", target="two")])
    assert (len(one.applied), len(two.applied)) == (0, 1)


@pytest.mark.parametrize("targets", [["unknown"], []])
def test_unknown_targets_are_refused_before_anything_is_written(
    tmp_path: Path, targets: list[str]
) -> None:
    with service(tmp_path, {"one": Recorder()}) as behind:
        with pytest.raises(TransactionUsageError):
            behind.commit([put(b"k")], targets=targets)
        assert behind.backlog.count == 0


def test_a_transaction_without_operations_is_named_so(tmp_path: Path) -> None:
    with service(tmp_path, {"one": Recorder()}) as behind:
        with pytest.raises(TransactionUsageError, match="without operations"), behind.begin():
            pass
        assert behind.backlog.count == 0


def test_order_per_key_is_kept_under_threads_batches_and_failures(tmp_path: Path) -> None:
    one = Recorder(batch_max=7)
    calls = iter(range(1_000_000))

    def fail(entry: PersistEntry) -> None:
        if next(calls) % 13 == 0:
            raise ConnectionError(f"flapping at {entry.number}")

    one.fail = fail
    with service(tmp_path, {"one": one}, settings=quick(workers_per_target=3)) as behind:

        def work() -> None:
            for index in range(40):
                behind.commit([put(b"k%d" % (index % 5))])

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert behind.drain(20)
    assert sorted(one.numbers) == list(range(1, 241))
    for key in range(5):
        own = [one.number for one in one.applied if one.operations[0].key == b"k%d" % key]
        assert own == sorted(own)


def test_functions_and_coroutines_are_targets(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def plain(entry: PersistEntry) -> None:
        seen.append(("plain", entry.number))

    async def later(entry: PersistEntry) -> None:
        await asyncio.sleep(0)
        seen.append(("later", entry.number))

    with service(tmp_path, {"plain": plain, "later": later}) as behind:
        behind.commit([put(b"k")])
    assert sorted(seen) == [("later", 1), ("plain", 1)]


def test_object_that_is_not_a_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no engine"):
        service(tmp_path, {"one": 7})


def test_a_url_is_no_target_and_its_password_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="create_engine") as caught:
        service(tmp_path, {"one": "postgresql://user:secret@host/database"})
    assert "secret" not in str(caught.value)


async def test_tasks_commit_without_blocking_their_loop(tmp_path: Path) -> None:
    one = Recorder()

    async def work(behind: WriteBehind) -> list[int]:
        return list(
            await asyncio.gather(*(behind.commit_async([put(b"%d" % n)]) for n in range(100)))
        )

    with service(tmp_path, {"one": one}) as behind:
        committed = await work(behind)
    assert sorted(committed) == sorted(one.numbers)


def test_unreachable_target_is_retried_and_nothing_is_set_aside(tmp_path: Path) -> None:
    one, up = Recorder(), threading.Event()

    def fail(_: PersistEntry) -> None:
        if not up.is_set():
            raise TargetDownError("no route")

    one.fail = fail
    with service(tmp_path, {"one": one}) as behind:
        for index in range(10):
            behind.commit([put(b"%d" % index)])
        while behind.statistics.retries < 8:
            assert not behind.drain(0.01)
        (status, *_) = behind.pending()
        assert status.targets[0].state in ("retrying", "queued")
        assert behind.statistics.set_aside == 0
        up.set()
        assert behind.drain(5)
    assert one.numbers == list(range(1, 11))


def test_failing_transaction_is_set_aside_and_unrelated_keys_continue(tmp_path: Path) -> None:
    one = Recorder()

    def fail(entry: PersistEntry) -> None:
        if entry.operations[0].value == b"poison":
            raise ValueError("bad value")

    one.fail = fail
    with service(tmp_path, {"one": one}) as behind:
        poison = behind.commit([put(b"k", b"poison")], "bad-order")
        behind.commit([put(b"k", b"after")])
        behind.commit([put(b"other")])
        while behind.statistics.set_aside == 0 or len(one.applied) < 1:
            assert not behind.drain(0.01)
        assert one.numbers == [3]
        (status,) = behind.pending("bad-order")
        assert status.number == poison
        assert status.targets[0].state == "set aside"
        assert "bad value" in status.targets[0].error
        behind.discard(poison)
        assert behind.drain(5)
    assert one.numbers == [3, 2]
    service(tmp_path, {"one": one}).close()


def test_set_aside_transaction_can_be_retried_after_a_repair(tmp_path: Path) -> None:
    one, repaired = Recorder(), threading.Event()

    def fail(_: PersistEntry) -> None:
        if not repaired.is_set():
            raise ValueError("no such table")

    one.fail = fail
    with service(tmp_path, {"one": one}) as behind:
        number = behind.commit([put(b"k")])
        while behind.statistics.set_aside == 0:
            assert not behind.drain(0.01)
        repaired.set()
        behind.retry(number)
        assert behind.wait(number, 5)
        with pytest.raises(KeyError):
            behind.retry(number)


@pytest.mark.parametrize(
    "limits",
    [{"backlog_max": 3}, {"backlog_bytes_max": 500}, {"backlog_age_seconds_max": 0.02}],
)
def test_limits_hold_and_callers_are_admitted_again(tmp_path: Path, limits: dict[str, Any]) -> None:
    one = Recorder()
    one.gate.clear()
    with service(tmp_path, {"one": one}, settings=quick(**limits)) as behind:
        with pytest.raises(BusyError, match="waits for its targets"):
            for index in range(100):
                behind.commit([put(b"%d" % index, bytes(50))])
                behind.drain(0.01)
        assert 1 <= behind.backlog.count <= 3
        assert behind.statistics.busy == 1
        one.gate.set()
        assert behind.drain(5)
        behind.commit([put(b"again")])


def test_waiting_caller_is_admitted_as_soon_as_there_is_space(tmp_path: Path) -> None:
    one = Recorder()
    one.gate.clear()
    chosen = quick(backlog_max=1, busy_timeout=10.0)
    with service(tmp_path, {"one": one}, settings=chosen) as behind:
        behind.commit([put(b"a")])
        threading.Timer(0.05, one.gate.set).start()
        behind.commit([put(b"b")])
    assert one.numbers == [1, 2]


def _leave_pending(path: Path, count: int) -> None:
    one = Recorder()
    one.fail = _down
    behind = service(path, {"one": one, "two": Recorder()})
    for index in range(count):
        behind.commit([put(b"k", b"%d" % index)], f"order-{index}")
    while len(behind.pending()) and any(len(one.targets) > 1 for one in behind.pending()):
        behind.drain(0.01)
    behind.close(0.1)


def _down(_: PersistEntry) -> None:
    raise ConnectionError


def test_start_is_refused_with_the_numbers_of_what_is_pending(tmp_path: Path) -> None:
    _leave_pending(tmp_path, 3)
    with pytest.raises(IncompleteLogError, match="1, 2, 3"):
        service(tmp_path, {"one": Recorder(), "two": Recorder()})


def test_replay_applies_what_is_pending_where_it_is_pending(tmp_path: Path) -> None:
    _leave_pending(tmp_path, 3)
    one, two = Recorder(), Recorder()
    with service(tmp_path, {"one": one, "two": two}, on_incomplete="replay") as behind:
        behind.commit([put(b"k")])
        assert behind.drain(5)
    assert (one.numbers, two.numbers) == ([1, 2, 3, 4], [4])
    assert one.applied[0].reference == "order-0"


def test_held_service_lists_discards_and_replays_but_commits_nothing(tmp_path: Path) -> None:
    _leave_pending(tmp_path, 3)
    one, two = Recorder(), Recorder()
    with service(tmp_path, {"one": one, "two": two}, on_incomplete="hold") as behind:
        with pytest.raises(IncompleteLogError, match="held back"):
            behind.commit([put(b"k")])
        assert [status.reference for status in behind.pending()] == [
            "order-0",
            "order-1",
            "order-2",
        ]
        behind.discard(2)
        assert behind.replay(5) == []
        behind.commit([put(b"k")])
    assert one.numbers == [1, 3, 4]


def test_strict_replay_stops_a_target_at_the_transaction_that_fails(tmp_path: Path) -> None:
    _leave_pending(tmp_path, 3)
    one = Recorder()

    def fail(entry: PersistEntry) -> None:
        if entry.number == 2:
            raise ValueError("no")

    one.fail = fail
    targets = {"one": one, "two": Recorder()}
    with service(tmp_path, targets, on_incomplete="hold", strict=True) as behind:
        left = behind.replay(5)
    assert [(status.number, status.targets[0].state) for status in left] == [
        (2, "set aside"),
        (3, "queued"),
    ]
    assert one.numbers == [1]


def test_pending_of_an_unknown_target_is_an_error_before_anything_is_applied(
    tmp_path: Path,
) -> None:
    _leave_pending(tmp_path, 2)
    new = Recorder()
    with pytest.raises(IncompleteLogError, match="one"):
        service(tmp_path, {"new": new}, on_incomplete="replay")
    assert new.applied == []
    with service(
        tmp_path, {"new": new, "two": Recorder()}, on_incomplete="replay", renamed={"one": "new"}
    ) as behind:
        assert behind.drain(5)
    assert new.numbers == [1, 2]
    service(tmp_path, {"new": new}).close()


def test_close_gives_up_on_a_target_that_is_down_and_keeps_its_work(tmp_path: Path) -> None:
    _leave_pending(tmp_path, 1)
    with service(tmp_path, {"one": Recorder(), "two": Recorder()}, on_incomplete="hold") as behind:
        assert [status.number for status in behind.pending()] == [1]


def test_closed_service_refuses_commits(tmp_path: Path) -> None:
    behind = service(tmp_path, {"one": Recorder()})
    behind.close()
    behind.close()
    with pytest.raises(LogClosedError):
        behind.commit([put(b"k")])


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_number_that_no_transaction_has_cannot_be_waited_for(tmp_path: Path, system: str) -> None:
    with service(tmp_path, {"one": Recorder()}, system=system) as behind:
        given = behind.commit([put(b"k")])
        assert behind.wait(given, 20)
        for number in (-1, 0, given + 1_000_000):
            with pytest.raises(KeyError):
                behind.wait(number, 0.0)
        wrong: Any
        for wrong in (float(given), True, None, str(given)):
            for call in (behind.wait, behind.find, behind.discard, behind.retry):
                with pytest.raises(TypeError, match="number is of type"):
                    call(wrong)
    with service(tmp_path, {"one": Recorder()}, system=system) as behind:
        assert behind.wait(given, 0.0)  # also of an earlier run


def test_commit_before_durability_still_arrives(tmp_path: Path) -> None:
    one = Recorder()
    with service(tmp_path, {"one": one}, settings=quick(wait_durable=False)) as behind:
        for index in range(50):
            behind.commit([put(b"%d" % index)])
        assert behind.drain(5)
    assert one.numbers == list(range(1, 51))


def test_log_keeps_its_identity_across_openings(tmp_path: Path) -> None:
    identities = []
    for _ in range(2):
        one = Recorder()
        service(tmp_path, {"one": one}).close()
        identities.append(one.log_id)
    assert identities[0] == identities[1] != ""


async def test_a_task_that_waits_for_space_commits_what_it_was_given_and_is_not_counted_as_busy(
    tmp_path: Path,
) -> None:
    one = Recorder()
    one.gate.clear()
    chosen = quick(backlog_max=1, busy_timeout=60.0)
    with service(tmp_path, {"one": one, "two": Recorder()}, settings=chosen) as behind:
        behind.commit([put(b"a")])
        threading.Timer(0.05, one.gate.set).start()
        await behind.commit_async(iter([put(b"b")]), targets=iter(["one"]))  # type: ignore[arg-type]
        assert behind.statistics.busy == 0
    assert [len(entry.operations) for entry in one.applied] == [1, 1]


async def test_a_task_that_waited_for_space_in_vain_is_counted_once(tmp_path: Path) -> None:
    one = Recorder()
    one.gate.clear()
    with service(tmp_path, {"one": one}, settings=quick(backlog_max=1)) as behind:
        behind.commit([put(b"a")])
        with pytest.raises(BusyError):
            await behind.commit_async([put(b"b")])
        assert behind.statistics.busy == 1
        one.gate.set()


def test_a_replay_for_which_no_thread_could_be_started_can_be_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _leave_pending(tmp_path, 1)
    one = Recorder()
    targets = {"one": one, "two": Recorder()}
    with service(tmp_path, targets, on_incomplete="hold") as behind:

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(OSError, match="no other thread"):
                behind.replay(5)
        assert behind.replay(5) == []
    assert one.numbers == [1]
