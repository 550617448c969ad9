"""A transaction within another one: an error, joined, or independent, as the program says."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tallystick.errors import RolledBackError, TransactionUsageError
from tallystick.services.journal import Journal
from tallystick.services.transactions import (
    AsyncTransactionManager,
    Retry,
    Status,
    Transaction,
    TransactionManager,
)

CHOICES = r"is running here.*begin\(join=True\).*begin\(independent=True\)"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "j") as made:
        yield made


@pytest.fixture
def tm(tmp_path: Path, journal: Journal) -> Iterator[TransactionManager]:
    resources = {"j": journal}
    with TransactionManager(
        tmp_path / "c", resources, close_resources=False, recovery_interval=None
    ) as made:
        yield made


def kept(journal: Journal) -> list[int]:
    return sorted(record.record_id for record in journal.live_records())


# -- threads ------------------------------------------------------------------------------------


def test_a_nested_begin_names_the_choices(tm: TransactionManager) -> None:
    with tm.begin() as tx:
        with pytest.raises(TransactionUsageError, match=CHOICES):
            tm.begin()
        assert tm.current() is tx
    assert tx.status is Status.COMMITTED
    tm.begin().rollback()


def test_a_nested_begin_names_how_to_end_a_block_that_was_never_left(
    tm: TransactionManager,
) -> None:
    tm.begin().__enter__()
    with pytest.raises(TransactionUsageError, match=r"current\(\)\.rollback\(\)"):
        tm.begin()
    tm.current().rollback()
    tm.begin().rollback()


def test_transactions_that_are_only_begun_are_not_nested(tm: TransactionManager) -> None:
    """They have no block: the program holds two on purpose, and says which one it uses."""
    first, second = tm.begin(), tm.begin()
    second.commit()
    first.rollback()


def test_a_nested_block_may_join(tm: TransactionManager, journal: Journal) -> None:
    with tm.begin() as tx:
        tx["j"].add(1, b"outer")
        with tm.begin(join=True) as inner:
            assert inner is tx is tm.current()
            inner["j"].add(2, b"inner")
        assert not kept(journal)
    assert kept(journal) == [1, 2]


def test_a_block_that_would_join_and_has_no_outer_one_begins(
    tm: TransactionManager, journal: Journal
) -> None:
    with tm.begin(join=True) as tx:
        tx["j"].add(1, b"alone")
    assert tx.status is Status.COMMITTED
    assert kept(journal) == [1]


def test_a_joined_block_that_raises_marks_the_whole(
    tm: TransactionManager, journal: Journal
) -> None:
    joined = r"had joined .* ValueError: half"
    with pytest.raises(RolledBackError, match=joined) as caught, tm.begin() as tx:
        tx["j"].add(1, b"outer")
        with pytest.raises(ValueError, match="half"), tm.begin(join=True) as inner:
            inner["j"].add(2, b"inner")
            raise ValueError("half")
        assert tx.status is Status.MARKED
    assert isinstance(caught.value.__cause__, ValueError)
    assert not kept(journal)


def test_an_independent_block_is_committed_whatever_becomes_of_the_outer_one(
    tm: TransactionManager, journal: Journal
) -> None:
    with pytest.raises(ZeroDivisionError), tm.begin() as tx:
        tx["j"].add(1, b"outer")
        with tm.begin(independent=True) as other:
            assert tm.current() is other is not tx
            other["j"].add(2, b"other")
        assert tm.current() is tx
        raise ZeroDivisionError
    assert kept(journal) == [2]


def test_joining_and_independent_are_not_chosen_together(tm: TransactionManager) -> None:
    wrong: dict[str, Any] = {"join": True, "independent": True}
    with pytest.raises(TransactionUsageError, match="not independent"):
        tm.begin(**wrong)


def test_a_block_is_entered_once(tm: TransactionManager) -> None:
    with tm.begin() as tx, pytest.raises(TransactionUsageError, match="open already"):
        tx.__enter__()
    assert tx.status is Status.COMMITTED


def test_a_joined_call_that_raises_is_not_kept(tm: TransactionManager, journal: Journal) -> None:
    @tm.transactional
    def inner() -> None:
        tm.current()["j"].add(2, b"half")
        raise ValueError("the other half fails")

    @tm.transactional
    def outer() -> None:
        tm.current()["j"].add(1, b"outer")
        with pytest.raises(ValueError, match="other half"):
            inner()

    with pytest.raises(RolledBackError, match="ValueError: the other half fails"):
        outer()
    assert not kept(journal)


def test_a_conflict_of_a_joined_call_repeats_the_whole(tm: TransactionManager) -> None:
    calls: list[str] = []

    @tm.transactional
    def inner() -> None:
        calls.append("inner")
        if len(calls) < 3:
            raise psycopg.errors.DeadlockDetected

    @tm.transactional(retry=Retry(3, first=0.0))
    def outer() -> None:
        calls.append("outer")
        try:
            inner()
        except psycopg.errors.DeadlockDetected:
            calls.append("handled")

    outer()
    assert calls == ["outer", "inner", "handled", "outer", "inner"]


@pytest.mark.parametrize("is_block", [True, False], ids=["block", "held"])
@pytest.mark.parametrize("way", ["decorated", "join", "current"])
def test_what_a_hook_before_the_commit_calls_is_a_part_of_it(
    tm: TransactionManager, journal: Journal, way: str, is_block: bool
) -> None:
    @tm.transactional
    def decorated() -> None:
        tm.current()["j"].add(2, b"audit")

    def join() -> None:
        with tm.begin(join=True) as joined:
            joined["j"].add(2, b"audit")

    def current() -> None:
        tm.current()["j"].add(2, b"audit")

    def work(tx: Transaction, *hooks: Callable[[], object]) -> None:
        with ExitStack() as block:
            if is_block:
                block.enter_context(tx)
            tx["j"].add(1, b"work")
            for hook in hooks:
                tx.before_commit(hook)
            if not is_block:
                tx.commit()

    hook = {"decorated": decorated, "join": join, "current": current}[way]
    with pytest.raises(RolledBackError, match="before commit"):
        work(tm.begin(), hook, lambda: 1 // 0)
    assert kept(journal) == []
    with tm.begin(independent=True) as outer:
        work(tm.begin(independent=True), hook)
        assert kept(journal) == [1, 2]
        assert tm.current() is outer


def test_a_hook_after_the_end_begins_a_transaction_of_its_own(
    tm: TransactionManager, journal: Journal
) -> None:
    @tm.transactional
    def after(_: Status) -> None:
        tm.current()["j"].add(2, b"after")

    with pytest.raises(ZeroDivisionError), tm.begin() as tx:
        tx.after_completion(after)
        _ = 1 // 0
    assert kept(journal) == [2]


def test_several_managers_are_independent(tm: TransactionManager, tmp_path: Path) -> None:
    with TransactionManager(tmp_path / "other", {}) as other, tm.begin(), other.begin() as tx:
        assert other.current() is tx is not tm.current()


INHERITED: dict[str, Callable[[Callable[[], object]], object]] = {
    "thread": lambda work: _joined(threading.Thread(target=work)),
    "thread with the context": lambda work: _joined(
        threading.Thread(target=contextvars.copy_context().run, args=(work,))
    ),
    "worker": lambda work: (
        ThreadPoolExecutor(1).submit(contextvars.copy_context().run, work).result()
    ),
}


def _joined(thread: threading.Thread) -> None:
    thread.start()
    thread.join()


@pytest.mark.parametrize("way", INHERITED)
def test_a_thread_that_is_started_inside_inherits_nothing(tm: TransactionManager, way: str) -> None:
    seen: list[object] = []

    def work() -> None:
        with pytest.raises(TransactionUsageError, match="no transaction is running here"):
            tm.current()
        with tm.begin() as tx:
            seen.append(tx)

    with tm.begin() as outer:
        INHERITED[way](work)
    assert seen
    assert seen[0] is not outer


# -- generators -----------------------------------------------------------------------------------


def block(tm: TransactionManager, number: int) -> Iterator[Any]:
    with tm.begin() as tx:
        tx["j"].add(number, b"of a generator")
        yield tx


def test_a_generator_may_be_closed_by_another_thread(
    tm: TransactionManager, journal: Journal
) -> None:
    """As frameworks do with a dependency: each step in a thread and a context of its own."""
    for number, end, status in ((1, lambda one: next(one, None), "committed"), (2, _close, None)):
        made = block(tm, number)
        with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
            tx = first.submit(contextvars.copy_context().run, next, made).result()
            second.submit(tx["j"].add, number + 10, b"by the second").result()
            second.submit(contextvars.copy_context().run, end, made).result()
        assert tx.status.value == (status or "rolled back")
    assert kept(journal) == [1, 11]


def _close(made: Any) -> None:
    made.close()


def test_a_generator_that_is_collected_rolls_back(tm: TransactionManager, journal: Journal) -> None:
    made = block(tm, 1)
    tx = next(made)
    del made
    gc.collect()
    assert tx.status is Status.ROLLED_BACK
    assert not kept(journal)
    tm.begin().rollback()  # nothing is open here any more


def test_a_block_that_ends_in_another_context_leaves_that_one_alone(
    tm: TransactionManager,
) -> None:
    made = block(tm, 1)
    contextvars.copy_context().run(next, made)
    with tm.begin() as tx:
        next(made, None)
        assert tm.current() is tx


# -- tasks ----------------------------------------------------------------------------------------


def run_tasks(tm: TransactionManager, work: Callable[[AsyncTransactionManager], Any]) -> None:
    async def main() -> None:
        async with AsyncTransactionManager(tm) as tasks:
            await work(tasks)

    asyncio.run(main())


def test_a_nested_begin_of_a_task_names_the_choices(tm: TransactionManager) -> None:
    async def work(tasks: AsyncTransactionManager) -> None:
        async with tasks.begin() as tx:
            for begin in (tasks.begin, tm.begin):
                with pytest.raises(TransactionUsageError, match=CHOICES):
                    begin()
            with pytest.raises(TransactionUsageError, match=CHOICES):
                await tasks.run(lambda one: one)
            async with tasks.begin(join=True) as inner:
                assert inner is tx is tasks.current()
            async with tasks.begin(independent=True) as other:
                assert other is not tx
            with pytest.raises(TransactionUsageError, match="of the same kind"):
                tm.begin(join=True)
        assert tx.status is Status.COMMITTED

    run_tasks(tm, work)


def test_a_joined_call_of_a_task_that_raises_is_not_kept(
    tm: TransactionManager, journal: Journal
) -> None:
    async def work(tasks: AsyncTransactionManager) -> None:
        @tasks.transactional
        async def inner() -> None:
            tasks.current()["j"].add(2, b"half")
            raise ValueError("the other half fails")

        with pytest.raises(RolledBackError, match="the other half fails"):
            async with tasks.begin() as tx:
                (await tx.enlist("j")).add(1, b"outer")
                with pytest.raises(ValueError, match="other half"):
                    await inner()

        assert not kept(journal)

    run_tasks(tm, work)


@pytest.mark.parametrize("is_awaited", [True, False], ids=["coroutine", "plain"])
def test_what_a_hook_of_a_task_calls_is_a_part_of_it(
    tm: TransactionManager, journal: Journal, is_awaited: bool
) -> None:
    async def work(tasks: AsyncTransactionManager) -> None:
        @tasks.transactional
        async def audit() -> None:
            await asyncio.sleep(0)
            tasks.current()["j"].add(2, b"audit")

        def plain() -> None:
            tasks.current()["j"].add(2, b"audit")

        hook = audit if is_awaited else plain
        with pytest.raises(RolledBackError, match="before commit"):
            async with tasks.begin() as tx:
                (await tx.enlist("j")).add(1, b"work")
                tx.before_commit(hook)
                tx.before_commit(lambda: 1 // 0)
        assert kept(journal) == []
        tx = tasks.begin()
        (await tx.enlist("j")).add(1, b"work")
        tx.before_commit(hook)
        await tx.commit()
        assert kept(journal) == [1, 2]
        with pytest.raises(TransactionUsageError, match="no transaction is running here"):
            tasks.current()

    run_tasks(tm, work)


def test_what_a_task_starts_inherits_nothing(tm: TransactionManager) -> None:
    async def work(tasks: AsyncTransactionManager) -> None:
        async def begin_in_task() -> object:
            with pytest.raises(TransactionUsageError, match="no transaction is running here"):
                tasks.current()
            async with tasks.begin() as tx:
                return tx

        def begin_in_thread() -> object:
            with tm.begin() as tx:
                return tx

        async with tasks.begin() as outer:
            found = [
                await asyncio.create_task(begin_in_task()),
                *await asyncio.gather(begin_in_task(), begin_in_task()),
                await asyncio.to_thread(begin_in_thread),
                await asyncio.get_running_loop().run_in_executor(None, begin_in_thread),
            ]
            assert tasks.current() is outer
        assert len({id(one) for one in [*found, outer]}) == 6

    run_tasks(tm, work)
