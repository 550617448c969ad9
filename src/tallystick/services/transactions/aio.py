"""The transaction manager for asyncio: the same transactions, off the event loop.

In: awaited calls. Out: work of one transaction run in worker threads, one call at a time, so
that no event loop blocks. The transaction is suspended between calls, so any worker may take
it up; `AsyncTransactionManager.run` does a whole transaction in one. One implementation:
everything below is `Transaction`'s.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from tallystick.services.transactions.manager import TransactionManager
from tallystick.services.transactions.recovery import RecoveryReport
from tallystick.services.transactions.transaction import Status, Transaction

_Result = TypeVar("_Result")

THREADS = 64
"""Worker threads of a manager unless it is told otherwise: so many transactions can wait for
databases, and for one sync of the log, at a time."""


class AsyncTransaction:
    """A transaction for one task; an asynchronous context manager like `Transaction`."""

    def __init__(self, transaction: Transaction, workers: Executor) -> None:
        self._transaction = transaction
        self._workers = workers
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
            return await _uncut(self._workers, in_thread)

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
    """The asynchronous face of a `TransactionManager`, which it closes at its end. At most
    ``threads`` transactions are at work in the same moment; others wait for a thread."""

    def __init__(self, manager: TransactionManager, *, threads: int = THREADS) -> None:
        self.manager = manager
        self._workers = ThreadPoolExecutor(threads, "tallystick-transaction")

    def begin(self, timeout: float | None = None) -> AsyncTransaction:
        """Begin a transaction: ``async with manager.begin() as tx``."""
        return AsyncTransaction(self.manager.begin(timeout), self._workers)

    async def run(
        self, work: Callable[[Transaction], _Result], timeout: float | None = None
    ) -> _Result:
        """``work(transaction)`` and its commit, in one worker thread: the shortest way for work
        that awaits nothing. It runs to its end even if the task is cancelled."""

        def in_thread() -> _Result:
            with self.manager.begin(timeout) as transaction:
                return work(transaction)

        return await _uncut(self._workers, in_thread)

    async def recover(self) -> RecoveryReport:
        """As `TransactionManager.recover`."""
        return await _uncut(self._workers, self.manager.recover)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await _uncut(self._workers, self.manager.close)
        self._workers.shutdown()


async def _uncut(workers: Executor, work: Callable[[], _Result]) -> _Result:
    """The result of ``work`` in a worker thread. A cancelled caller waits for its end: a thread
    cannot be cancelled, and a commit must not be left half told."""
    context = contextvars.copy_context()
    job = asyncio.get_running_loop().run_in_executor(workers, lambda: context.run(work))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait([job])
        raise
