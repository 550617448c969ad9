"""Both faces of a transaction manager with the same calls, for tests that hold for both.

`Awaited` has the calls of a `TransactionManager` and makes transactions of tasks: each call runs an
event loop until it is done.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Self, cast

from tallystick.records import Xid
from tallystick.services.transactions import TransactionManager, Vote
from tallystick.services.transactions.aio import AsyncTransaction, AsyncTransactionManager
from tallystick.services.transactions.resource import Branch, Resource


class Awaited:
    """A manager and its event loop."""

    def __init__(self, manager: TransactionManager) -> None:
        self._manager = manager
        self._tasks = AsyncTransactionManager(manager, threads=8)
        self._loop = asyncio.new_event_loop()
        # For tests that simulate a crash. In a cycle `__del__` may come after the loop's sockets.
        weakref.finalize(self, self._loop.close)

    def begin(self, timeout: float | None = None) -> AwaitedTransaction:
        return AwaitedTransaction(self._loop, self._tasks.begin(timeout))

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._tasks.__aexit__(None, None, None))
            self._loop.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AwaitedTransaction:
    """A transaction of a task, one call at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: AsyncTransaction) -> None:
        self._loop = loop
        self._inner = inner

    def __getitem__(self, name: str) -> Any:
        if name not in self._inner.branches:
            self._await(self._inner.enlist(name))
        handle = self._inner[name]
        return AwaitedHandle(self._loop, handle) if hasattr(handle, "pgconn") else handle

    def commit(self) -> None:
        self._await(self._inner.commit())

    def prepare(self) -> None:
        self._await(self._inner.prepare())

    def rollback(self) -> None:
        self._await(self._inner.rollback())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._await(self._inner.__aexit__(*raised))

    def _await(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(call)


class AwaitedHandle:
    """A connection of tasks."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: Any) -> None:
        self._loop = loop
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(found):
            return found
        return lambda *given: self._loop.run_until_complete(found(*given))


class TaskBranch:
    """A branch for tasks over one that blocks, with a pause before each call."""

    def __init__(self, inner: Branch) -> None:
        self.xid = inner.xid
        self.handle = inner.handle
        self._inner = inner

    async def prepare(self) -> Vote:
        await asyncio.sleep(0)
        return self._inner.prepare()

    async def commit(self) -> None:
        await asyncio.sleep(0)
        self._inner.commit()

    async def commit_one_phase(self) -> None:
        await asyncio.sleep(0)
        self._inner.commit_one_phase()

    async def rollback(self) -> None:
        await asyncio.sleep(0)
        self._inner.rollback()

    async def close(self) -> None:
        self._inner.close()


def _for_tasks(resource: Any) -> None:
    async def begin_async(xid: Xid) -> TaskBranch:
        return TaskBranch(resource.begin(xid))

    resource.begin_async = begin_async


def _instant(resource: Any) -> None:
    resource.instant = True


def _unchanged(_: Resource) -> None:
    """Leave the resource as it is: the manager takes it for one that blocks."""


Face = Callable[[TransactionManager], TransactionManager]


def _awaited(change: Callable[[Any], None]) -> Face:
    def face(manager: TransactionManager) -> TransactionManager:
        for resource in manager.resources.values():
            change(resource)
        return cast(TransactionManager, Awaited(manager))

    return face


FACES: dict[str, Face] = {
    "blocking": lambda manager: manager,
    "awaited": _awaited(_for_tasks),
    "as they are": _awaited(_unchanged),
    "instant": _awaited(_instant),
}
