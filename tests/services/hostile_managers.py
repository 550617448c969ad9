"""Transaction managers of threads and of tasks, called with one odd argument each.

See `tests.services.hostile_calls`, whose `Subject` these are.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from tallystick.services.transactions import AsyncTransactionManager, TransactionManager
from tests.services.hostile_calls import Call, Given, Make, Row
from tests.services.hostile_services import MessagingSubject, message_in


class ManagerSubject(MessagingSubject):
    """A transaction manager, and its transactions, which change nothing here."""

    def dead(self) -> str:
        """The directory of a node that is not at work."""
        path = str(self.folder / "dead")
        TransactionManager(path, {}, recovery_interval=None).close()
        return path


def _begin_block(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
    with subject.tm.begin(**given):
        return []


def _decorate(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    made = subject.tm.transactional(**given)
    if given["function"] is equal["function"] is _one:
        assert made() == 1
    return []


def _one() -> int:
    return 1


def _take_over(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
    assert subject.tm.take_over(**given).clean
    return []


def _in_transaction(name: str) -> Make:
    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
        with subject.tm.begin() as tx:
            getattr(tx, name)(**given)
        return []

    return make


_HOOK = {"hook": lambda _: lambda *_: None}
ManagerSubject.calls = [
    Call("TransactionManager.begin", {"timeout": lambda _: 9.0, "join": lambda _: False,
         "independent": lambda _: False}, _begin_block),
    Call("TransactionManager.transactional", {"function": lambda _: _one, "key": lambda _: None,
         "retry": lambda _: 0}, _decorate),
    Call("TransactionManager.take_over", {"path": lambda one: one.dead(), "log": lambda _: None},
         _take_over),
    Call("Transaction.before_commit", _HOOK, _in_transaction("before_commit")),
    Call("Transaction.after_completion", _HOOK, _in_transaction("after_completion")),
    Call("Transaction.enlist", {"name": lambda _: "lite"}, _in_transaction("enlist")),
    Call("Transaction.connection", {"name": lambda _: "lite", "kind": lambda _: object},
         _in_transaction("connection")),
]  # fmt: skip


# -- for tasks ----------------------------------------------------------------------------------


class TaskManagerSubject(ManagerSubject):
    """A transaction manager for tasks, and its transactions."""

    def open(self) -> None:
        super().open()
        self._runner = asyncio.Runner()
        self.tasks = AsyncTransactionManager(self.tm)

    def close(self) -> None:
        self._runner.run(self.tasks.close())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)


def _awaited(
    work: Callable[[Any, Given, Given], Coroutine[Any, Any, Iterable[Row] | None]],
) -> Make:
    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
        return subject.run(work(subject, given, equal)) or []

    return make


async def _begin_awaited(subject: Any, given: Given, equal: Given) -> None:  # noqa: ARG001
    async with subject.tasks.begin(**given):
        pass


async def _run_awaited(subject: Any, given: Given, equal: Given) -> None:  # noqa: ARG001
    await subject.tasks.run(**given)


async def _take_over_awaited(subject: Any, given: Given, equal: Given) -> None:  # noqa: ARG001
    assert (await subject.tasks.take_over(**given)).clean


async def _one_awaited() -> int:
    return 1


async def _decorate_awaited(subject: Any, given: Given, equal: Given) -> None:
    made = subject.tasks.transactional(**given)
    if given["function"] is equal["function"] is _one_awaited:
        assert await made() == 1


def _in_task(name: str) -> Make:
    async def work(subject: Any, given: Given, equal: Given) -> None:  # noqa: ARG001
        async with subject.tasks.begin() as tx:
            found = getattr(tx, name)(**given)
            if found is not None:
                await found

    return _awaited(work)


async def _execute(subject: Any, given: Given, equal: Given) -> None:  # noqa: ARG001
    try:
        async with subject.tasks.begin() as tx:
            await tx.execute(**given)
    except (sqlite3.Error, NotImplementedError) as error:  # the driver's own word on a statement
        raise ValueError from error


async def _add_awaiting(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    async with subject.tasks.begin() as tx:
        chosen = tx if given["transaction"] is None else given["transaction"]
        rest = [given[one] for one in ("topic", "body", "headers")]
        await subject.outbox.add_awaiting(chosen, *rest)
    return message_in(equal)


_LITE = {"name": lambda _: "lite"}
_STATEMENT = {**_LITE, "statement": lambda _: "SELECT ?", "parameters": lambda _: (1,)}
TaskManagerSubject.calls = [
    Call("AsyncTransactionManager.begin", {"timeout": lambda _: 9.0, "join": lambda _: False,
         "independent": lambda _: False}, _awaited(_begin_awaited)),
    Call("AsyncTransactionManager.run", {"work": lambda _: lambda _: None,
         "timeout": lambda _: 9.0}, _awaited(_run_awaited)),
    Call("AsyncTransactionManager.transactional", {"function": lambda _: _one_awaited,
         "key": lambda _: None, "retry": lambda _: 0}, _awaited(_decorate_awaited)),
    Call("AsyncTransactionManager.take_over", {"path": lambda one: one.dead(),
         "log": lambda _: None}, _awaited(_take_over_awaited)),
    Call("AsyncTransaction.before_commit", _HOOK, _in_task("before_commit")),
    Call("AsyncTransaction.after_completion", _HOOK, _in_task("after_completion")),
    Call("AsyncTransaction.enlist", _LITE, _in_task("enlist")),
    Call("AsyncTransaction.connection", {**_LITE, "kind": lambda _: object},
         _in_task("connection")),
    Call("AsyncTransaction.run", {**_LITE, "work": lambda _: lambda _: None}, _in_task("run")),
    Call("AsyncTransaction.execute", _STATEMENT, _awaited(_execute)),
    Call("Outbox.add_awaiting", {"transaction": lambda _: None, "topic": lambda _: "topic",
         "body": lambda _: b"body", "headers": lambda _: None}, _awaited(_add_awaiting)),
]  # fmt: skip
