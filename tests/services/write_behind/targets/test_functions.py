"""Targets that are functions: their entries are marked in batches, and each is judged by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.roles import PersistEntry
from tallystick.services.write_behind import WriteBehind, WriteBehindSettings
from tallystick.services.write_behind.targets import adapters
from tallystick.services.write_behind.targets.adapters import (
    BATCH_SECONDS,
    AsyncTarget,
    CallableTarget,
)
from tallystick.services.write_behind.targets.target import PartlyAppliedError
from tests.services.write_behind.kit import put, quick

ENTRIES = [PersistEntry(number, ("one",), (), "", 0) for number in range(1, 6)]


def _failing_at(number: int, called: list[int]) -> Callable[[PersistEntry], None]:
    def function(entry: PersistEntry) -> None:
        called.append(entry.number)
        if entry.number == number:
            raise KeyError(number)

    return function


@pytest.fixture
def no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch ends because its time is over."""
    monkeypatch.setattr(adapters, "BATCH_SECONDS", 600.0)


@pytest.mark.usefixtures("no_limit")
def test_a_function_that_raises_leaves_what_it_was_called_with_before() -> None:
    called: list[int] = []
    with pytest.raises(PartlyAppliedError) as caught:
        CallableTarget(_failing_at(3, called)).apply(ENTRIES)
    assert called == [1, 2, 3]
    assert caught.value.count == 2
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_slow_function_ends_its_batch_and_the_last_entry_needs_no_end() -> None:
    slow = threading.Event()
    target = CallableTarget(lambda _entry: slow.wait(2 * BATCH_SECONDS))
    with pytest.raises(PartlyAppliedError) as caught:
        target.apply(ENTRIES)
    assert (caught.value.count, caught.value.__cause__) == (1, None)
    target.apply(ENTRIES[:1])


@pytest.mark.usefixtures("no_limit")
def test_a_coroutine_function_is_judged_as_a_function_is() -> None:
    async def function(entry: PersistEntry) -> None:
        if entry.number == 2:
            raise KeyError(2)

    target = AsyncTarget(function)
    target.open("log")
    with pytest.raises(PartlyAppliedError) as caught:
        target.apply(ENTRIES)
    target.close()
    assert caught.value.count == 1
    assert isinstance(caught.value.__cause__, KeyError)


def _settings(workers: int) -> WriteBehindSettings:
    return quick(workers_per_target=workers, attempts_max=2, retry_seconds=0.001, target_duty=1.0)


@pytest.mark.parametrize("workers", [1, 3])
def test_only_the_entry_at_fault_is_called_again(tmp_path: Path, workers: int) -> None:
    called: list[int] = []
    fail, held = _failing_at(20, called), threading.Event()

    def function(entry: PersistEntry) -> None:
        held.wait(30)
        fail(entry)

    with WriteBehind(tmp_path, {"one": function}, settings=_settings(workers)) as behind:
        for number in range(1, 31):
            behind.commit([put(b"%d" % number)])
        held.set()
        while behind.backlog.count > 1 or called.count(20) < 2:
            behind.wait(20, 0.01)
        (left,) = behind.pending()
        assert (left.number, left.targets[0].state) == (20, "set aside")
        behind.discard(20)
    assert sorted(called) == sorted([*range(1, 31), 20])
    if workers == 1:
        assert [number for number in called if number != 20] == [*range(1, 20), *range(21, 31)]


def test_entries_that_were_applied_are_marked_while_a_later_one_of_their_batch_runs(
    tmp_path: Path,
) -> None:
    gates = {"before": threading.Event(), "after": threading.Event()}
    reached = {name: threading.Event() for name in gates}
    slow = threading.Event()

    def function(entry: PersistEntry) -> None:
        if entry.reference == "slow":
            slow.wait(2 * BATCH_SECONDS)
        elif entry.reference in gates:
            reached[entry.reference].set()
            gates[entry.reference].wait(30)

    with WriteBehind(tmp_path, {"one": function}, settings=_settings(1)) as behind:
        for _ in range(40):  # the batches grow
            behind.commit([put(b"fast")])
        assert behind.drain(30)
        behind.commit([put(b"key")], "before")
        assert reached["before"].wait(30)
        first, second = (behind.commit([put(b"key")], name) for name in ("slow", "after"))
        gates["before"].set()
        assert behind.wait(first, 30)
        assert reached["after"].wait(30)
        assert behind.find(second) is not None
        gates["after"].set()
        assert behind.drain(30)
