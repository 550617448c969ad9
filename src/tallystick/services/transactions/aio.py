"""The transaction manager for asyncio: the same transactions, awaited.

In: awaited calls. Out: the steps of `global_transaction`, driven on the event loop. What has to
be waited for is awaited: the decision on the log's group commit, branches of resources that have
them for tasks (`AsyncResource`). Resources that never wait are called as they are. Work of all
others runs in worker threads, one call at a time, so that no event loop blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tallystick.errors import TransactionUsageError
from tallystick.services.transactions.global_transaction import OPEN, GlobalTransaction, Status
from tallystick.services.transactions.recovery import RecoveryReport
from tallystick.services.transactions.resource import Resource, is_instant
from tallystick.services.transactions.resources.thread_branch import ThreadedBranch, in_thread
from tallystick.services.transactions.steps import Steps, drive_awaiting, one_step
from tallystick.services.transactions.transaction import Transaction

if TYPE_CHECKING:
    from tallystick.services.transactions.manager import TransactionManager

_Result = TypeVar("_Result")

THREADS = 64
"""Worker threads of a manager unless it is told otherwise: so many transactions can wait at a
time for databases whose drivers block."""


class AsyncTransaction(GlobalTransaction):
    """A transaction for tasks of one event loop; an asynchronous context manager that commits, or
    rolls back on an exception. Its calls come one after the other, whichever tasks make them, and
    run to their ends even if those are cancelled."""

    __slots__ = ("_at_work", "_done", "_enders", "_workers")

    def __init__(
        self,
        manager: TransactionManager,
        gtrid: bytes,
        timeout: float,
        workers: Executor,
        enders: Executor,
    ) -> None:
        super().__init__(manager, gtrid, timeout)
        self._workers = workers
        self._enders = enders
        self._at_work = False
        self._done: asyncio.Future[None] | None = None
        """The end of the call that is under way, if another one waits for it."""

    def __getitem__(self, name: str) -> Any:
        """The handle of an enlisted resource; one that never waits is enlisted here and now."""
        self._require_open("use a resource")
        if name not in self._branches:
            resource = self._joining(name)
            if not is_instant(resource):
                raise TransactionUsageError(
                    f"{name!r} is not enlisted, and has to be waited for",
                    advice=f"Use 'await transaction.enlist({name!r})', or run()",
                )
            self._join(name, resource, resource.begin(self._manager.xids.branch(self.gtrid)))
        return self._branches[name].handle

    async def enlist(self, name: str) -> Any:
        """Enlist a resource and give its handle: one that is awaited if the resource has it (a
        ``psycopg.AsyncConnection``), else the one that a thread gets, which may block the loop:
        `run` is better then. Raises `TransactionUsageError` if it is enlisted already."""
        self._require_new(name)
        await self._do(self._begin(name))
        return self[name]

    async def run(self, name: str, work: Callable[[Any], _Result]) -> _Result:
        """``work(handle)`` of the resource ``name`` in a worker thread; its result. The handle is
        the one that a thread gets; the resource is enlisted at its first use."""
        return await self._do(self._run(name, work))

    async def execute(self, name: str, statement: Any, parameters: Any = ()) -> Any:
        """``handle.execute(statement, parameters)``: the driver's cursor or result. The resource is
        enlisted at its first use, as `enlist` does; what blocks runs in a worker thread."""
        if name not in self._branches:
            await self._do(self._begin(name))
        if isinstance(self._branches[name], ThreadedBranch):
            return await self.run(name, lambda handle: handle.execute(statement, parameters))
        answer = self[name].execute(statement, parameters)
        return await answer if hasattr(answer, "__await__") else answer

    async def commit(self) -> None:
        """As `Transaction.commit`; a hook may return something to await, and use the transaction.
        The commit runs to its end even if the task is cancelled."""
        await self._run_hooks()
        await self._do(self._commit())

    async def prepare(self) -> None:
        """As `Transaction.prepare`."""
        await self._run_hooks()
        await self._do(self._prepare())

    async def rollback(self) -> None:
        """As `Transaction.rollback`."""
        await self._do(self._roll_back())

    async def _run_hooks(self) -> None:
        if not self._before or self.status is Status.PREPARED:
            return
        try:
            await drive_awaiting(self._call_hooks())
        except TransactionUsageError:
            raise
        except BaseException:
            await self._do(self._roll_back())
            raise

    # -- steps ------------------------------------------------------------------------------

    async def _do(self, steps: Steps[_Result]) -> _Result:
        return await drive_awaiting(self._in_turn(steps))

    def _in_turn(self, steps: Steps[_Result]) -> Steps[_Result]:
        """The same steps once no other call is under way."""
        while self._at_work:
            if self._done is None:
                self._done = asyncio.get_running_loop().create_future()
            yield partial(asyncio.wait, [self._done])
        self._at_work = True
        try:
            return (yield from steps)
        finally:
            self._at_work = False
            if self._done is not None:
                self._done.set_result(None)
                self._done = None

    def _begin(self, name: str) -> Steps[None]:
        """Enlist a resource with the branch that suits tasks, unless it is enlisted."""
        self._require_open("use a resource")
        if name in self._branches:
            return
        resource = self._joining(name)
        begin = getattr(resource, "begin_async", None)
        if is_instant(resource) or begin is None:
            yield from self._begin_blocking(name, resource)
        else:
            branch = yield partial(begin, self._manager.xids.branch(self.gtrid))
            self._join(name, resource, branch)

    def _run(self, name: str, work: Callable[[Any], _Result]) -> Steps[_Result]:
        self._require_open("use a resource")
        if name not in self._branches:
            yield from self._begin_blocking(name, self._joining(name))
        branch = self._branches[name]
        if not (isinstance(branch, ThreadedBranch) or is_instant(self._manager.resource(name))):
            raise TransactionUsageError(
                f"the handle of {name!r} is for tasks: no thread can use it",
                advice=f"Await the calls of transaction[{name!r}], or begin with run()",
            )
        result: _Result = yield partial(in_thread, self._workers, lambda: work(branch.handle))
        return result

    def _begin_blocking(self, name: str, resource: Resource) -> Steps[None]:
        xid = self._manager.xids.branch(self.gtrid)
        if is_instant(resource):
            self._join(name, resource, resource.begin(xid))
            return
        branch = yield partial(in_thread, self._workers, lambda: resource.begin(xid))
        self._join(name, resource, ThreadedBranch(branch, self._enders))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.status not in OPEN:
            return
        await (self.commit() if error is None else self.rollback())


class AsyncTransactionManager:
    """The asynchronous face of a `TransactionManager`, which it closes at its end. At most
    ``threads`` pieces of work on drivers that block are under way in the same moment, and as many
    ends of branches; others wait."""

    def __init__(self, manager: TransactionManager, *, threads: int = THREADS) -> None:
        self.manager = manager
        self._workers = ThreadPoolExecutor(threads, "tallystick-transaction")
        # Apart: work may wait for locks, which go with the end of another transaction.
        self._enders = ThreadPoolExecutor(threads, "tallystick-transaction-end")

    def begin(self, timeout: float | None = None) -> AsyncTransaction:
        """Begin a transaction: ``async with manager.begin() as tx``."""
        return self.manager.begin_as(AsyncTransaction, timeout, self._workers, self._enders)

    async def run(
        self, work: Callable[[Transaction], _Result], timeout: float | None = None
    ) -> _Result:
        """``work(transaction)`` and its commit, in one worker thread: the shortest way for work
        that blocks. It runs to its end even if the task is cancelled."""

        def whole() -> _Result:
            with self.manager.begin(timeout) as transaction:
                return work(transaction)

        return await self._in_thread(whole)

    async def recover(self) -> RecoveryReport:
        """As `TransactionManager.recover`."""
        return await self._in_thread(self.manager.recover)

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        return await drive_awaiting(one_step(partial(in_thread, self._workers, work)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._in_thread(self.manager.close)
        self._workers.shutdown()
        self._enders.shutdown()
