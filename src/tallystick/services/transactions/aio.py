"""The transaction manager for asyncio: the same transactions, off the event loop.

In: awaited calls. Out: work of one transaction run in worker threads, one call at a time, so
that no event loop blocks. The transaction is suspended between calls, so any worker may take
it up. One implementation: everything below is `Transaction`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from tallystick.services.transactions.manager import TransactionManager
from tallystick.services.transactions.recovery import RecoveryReport
from tallystick.services.transactions.transaction import Status, Transaction

_Result = TypeVar("_Result")


class AsyncTransaction:
    """A transaction for one task; an asynchronous context manager like `Transaction`."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._turn = asyncio.Lock()
        transaction.suspend()

    @property
    def gtrid(self) -> bytes:
        return self._transaction.gtrid

    @property
    def status(self) -> Status:
        return self._transaction.status

    async def run(self, name: str, work: Callable[[Any], _Result]) -> _Result:
        """``work(handle)`` of the resource ``name`` in a worker thread; its result."""
        return await self._call(lambda: work(self._transaction[name]), suspend=True)

    async def execute(self, name: str, statement: Any, parameters: Any = ()) -> Any:
        """``handle.execute(statement, parameters)``: the driver's cursor or result."""
        return await self.run(name, lambda handle: handle.execute(statement, parameters))

    async def commit(self) -> None:
        """As `Transaction.commit`. It runs to its end even if the task is cancelled."""
        await self._call(self._transaction.commit, suspend=False)

    async def rollback(self) -> None:
        """As `Transaction.rollback`."""
        await self._call(self._transaction.rollback, suspend=False)

    async def _call(self, work: Callable[[], _Result], *, suspend: bool) -> _Result:
        def in_thread() -> _Result:
            self._transaction.resume()
            try:
                return work()
            finally:
                if suspend:
                    self._transaction.suspend()

        async with self._turn:
            # Shielded: a thread cannot be cancelled, and a commit must not be left half told.
            job = asyncio.ensure_future(asyncio.to_thread(in_thread))
            try:
                return await asyncio.shield(job)
            except asyncio.CancelledError:
                await asyncio.wait([job])
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.status not in (Status.ACTIVE, Status.MARKED):
            return
        await (self.commit() if error is None else self.rollback())


class AsyncTransactionManager:
    """The asynchronous face of a `TransactionManager`, which it closes at its end."""

    def __init__(self, manager: TransactionManager) -> None:
        self.manager = manager

    def begin(self, timeout: float | None = None) -> AsyncTransaction:
        """Begin a transaction: ``async with manager.begin() as tx``."""
        return AsyncTransaction(self.manager.begin(timeout))

    async def recover(self) -> RecoveryReport:
        """As `TransactionManager.recover`."""
        return await asyncio.to_thread(self.manager.recover)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.manager.close)
