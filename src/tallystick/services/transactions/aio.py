"""The transaction manager for asyncio: the same transactions, awaited.

In: awaited calls. Out: the steps of `two_phase_commit`, run on the event loop. The decision is
awaited on the log's group commit, and so are branches of resources that have them for tasks
(`AsyncResource`). Resources that never wait are called directly. Work on all others runs in worker
threads, one call at a time, so that no event loop blocks.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar, overload

from tallystick.arguments import integer
from tallystick.callables import require_plain, require_value
from tallystick.errors import LogClosedError, TransactionUsageError
from tallystick.records import Xid
from tallystick.roles import DecisionLog, RecoveryResult
from tallystick.services.transactions.manager import TransactionManager, require_running
from tallystick.services.transactions.messaging.handlers import decorate_task, refuse_lazy
from tallystick.services.transactions.messaging.keys import IdempotencyKey
from tallystick.services.transactions.messaging.retry import Retry
from tallystick.services.transactions.metrics import Statistics
from tallystick.services.transactions.recovery import RecoveryReport
from tallystick.services.transactions.resource import (
    AsyncBranch,
    Problem,
    Resource,
    ResourceUnreachable,
    is_instant,
)
from tallystick.services.transactions.resources.pool import Turns
from tallystick.services.transactions.resources.thread_branch import ThreadedBranch, in_thread
from tallystick.services.transactions.steps import Steps, drive_awaiting, one_step
from tallystick.services.transactions.transaction import (
    OPEN,
    Current,
    GlobalTransaction,
    Joined,
    Running,
    Status,
    Transaction,
    here,
    inside,
    of_kind,
)
from tallystick.services.transactions.two_phase_commit import TwoPhaseCommit
from tallystick.services.transactions.xids import XidFactory
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import time
from tallystick.storage.signals import uninterrupted

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Handle = TypeVar("_Handle")

CONNECTIONS = 20
"""Transactions of a manager that use databases at the same time, by default."""


class AsyncTransaction(GlobalTransaction):
    """A transaction for tasks of one event loop.

    An asynchronous context manager that commits, or rolls back on an exception. Its calls run one
    after the other, whichever tasks make them, and to their ends even if those are cancelled.
    """

    __slots__ = ("_at_work", "_done", "_end_workers", "_turns", "_workers")

    def __init__(
        self,
        protocol: TwoPhaseCommit,
        resources: Mapping[str, Resource],
        xids: XidFactory,
        workers: Executor,
        end_workers: Executor,
        turns: Turns,
        current: Current,
    ) -> None:
        super().__init__(protocol, resources, xids, current)
        self._workers = workers
        self._end_workers = end_workers
        self._turns = turns
        self._at_work = False
        self._done: asyncio.Future[None] | None = None
        """The end of the call that is under way, if another one waits for it."""

    def __getitem__(self, name: str) -> Any:
        """Return the handle of an enlisted resource; one that never waits is enlisted now."""
        self._require_open("use a resource")
        branches = self._protocol.branches
        if name not in branches:
            resource = self._joinable(name)
            if not is_instant(resource):
                raise TransactionUsageError(
                    f"{name!r} is not enlisted, and has to be waited for",
                    advice=f"Use 'await transaction.enlist({name!r})', or run()",
                )
            with uninterrupted:
                self._begin_now(name, resource)
        return branches[name].handle

    async def enlist(self, name: str) -> Any:
        """Enlist a resource and return its handle.

        The handle is one that is awaited if the resource has it (a ``psycopg.AsyncConnection``);
        else the one that a thread gets, which may block the loop: `run` is better then.

        Raises:
            TransactionUsageError: it is enlisted already; use ``transaction[name]``.
        """
        self._require_new(name)
        await self._enlist(name)
        return self[name]

    async def connection(self, name: str, kind: type[_Handle]) -> _Handle:
        """Return the handle of a resource with its class, for type checkers.

        Args:
            name: the resource, which is enlisted at its first use.
            kind: the class of its handle, such as ``psycopg.AsyncConnection``.

        Raises:
            TransactionUsageError: the handle is something else.
        """
        if name not in self._protocol.branches:
            await self._enlist(name)
        return of_kind(self[name], name, kind)

    async def run(self, name: str, work: Callable[[Any], _Result]) -> _Result:
        """Call ``work(handle)`` in a worker thread and return its result.

        Args:
            name: the resource, which is enlisted at its first use.
            work: gets the handle that a thread gets.

        Raises:
            TransactionUsageError: ``work`` has to be awaited.
        """
        require_plain(work, "the work of run()")
        await self._take_turn(name)
        return await self._do(self._run(name, work))

    async def execute(self, name: str, statement: Any, parameters: Any = None) -> Any:
        """Call ``handle.execute(statement, parameters)``, in a worker thread if it blocks.

        The resource is enlisted at its first use, as by `enlist`. Without ``parameters`` the handle
        gets none.

        Returns:
            The driver's cursor or result.
        """
        branches = self._protocol.branches
        given = (statement,) if parameters is None else (statement, parameters)
        if name not in branches:
            await self._enlist(name)
        if isinstance(branches[name], ThreadedBranch):
            return await self.run(name, lambda handle: handle.execute(*given))
        answer = self[name].execute(*given)
        return await answer if hasattr(answer, "__await__") else answer

    async def commit(self) -> None:
        """Make it durable in every resource, or in none; see `Transaction.commit`.

        A hook may return an awaitable, and use the transaction. The commit runs to its end even if
        the task is cancelled.
        """
        self._refuse_hook("commit it")
        await self._run_hooks()
        await self._do(self._commit())

    async def prepare(self) -> None:
        """Run the first phase alone; see `Transaction.prepare`."""
        self._refuse_hook("prepare it")
        await self._run_hooks()
        await self._do(self._prepare())

    async def rollback(self) -> None:
        """Undo everything in every resource."""
        self._refuse_hook("roll it back")
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

    def _inside(self, hook: Callable[[], object]) -> object:
        answer = super()._inside(hook)
        return self._await_inside(answer) if isinstance(answer, Awaitable) else answer

    async def _await_inside(self, answer: Awaitable[object]) -> object:
        """Await the answer of a hook in a task of its own, which ends with it."""
        self._current.set(Running(self, here()))
        return await answer

    async def _enlist(self, name: str) -> None:
        await self._take_turn(name)
        await self._do(self._begin(name))

    async def _take_turn(self, name: str) -> None:
        """Wait until the transaction may use databases, if it does not yet."""
        protocol = self._protocol
        self._require_open("use a resource")
        if self._has_turn() or is_instant(self._joinable_or_joined(name)):
            return
        try:
            await self._turns.take(self._deadline)
        except TimeoutError:
            self._require_open("use a resource")  # its time is over, too
            raise
        if self._has_turn() or self.status not in OPEN:  # in another task meanwhile
            self._turns.give_back()
        else:
            protocol.on_release = self._turns.give_back

    def _has_turn(self) -> bool:
        return self._protocol.on_release is not None

    def _joinable_or_joined(self, name: str) -> Resource:
        return self._resources[name] if name in self.branches else self._joinable(name)

    # -- steps ------------------------------------------------------------------------------

    async def _do(self, steps: Steps[_Result]) -> _Result:
        return await drive_awaiting(self._in_turn(steps))

    def _in_turn(self, steps: Steps[_Result]) -> Steps[_Result]:
        """Run the steps once no other call is under way."""
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
        if name in self._protocol.branches:
            return
        resource = self._joinable(name)
        begin = getattr(resource, "begin_async", None)
        if is_instant(resource) or begin is None:
            yield from self._begin_blocking(name, resource)
        else:
            branch = yield partial(self._begin_in_time, name, begin)
            self._join(name, resource, branch)

    async def _begin_in_time(
        self, name: str, begin: Callable[[Xid], Awaitable[AsyncBranch]]
    ) -> AsyncBranch:
        """Begin a branch for tasks, in the time that the transaction has left."""
        try:
            async with asyncio.timeout(self._deadline - time.monotonic()):
                return await begin(self._xids.branch(self.gtrid))
        except TimeoutError as error:
            if time.monotonic() < self._deadline:  # the driver raised it
                raise
            raise ResourceUnreachable(f"{name} has not begun a branch in time") from error

    def _run(self, name: str, work: Callable[[Any], _Result]) -> Steps[_Result]:
        self._require_open("use a resource")
        branches = self._protocol.branches
        if name not in branches:
            yield from self._begin_blocking(name, self._joinable(name))
        branch = branches[name]
        if not (isinstance(branch, ThreadedBranch) or is_instant(self._resources[name])):
            raise TransactionUsageError(
                f"the handle of {name!r} is for tasks: no thread can use it",
                advice=f"Await the calls of transaction[{name!r}], or begin with run()",
            )
        result: _Result = yield partial(in_thread, self._workers, lambda: work(branch.handle))
        return result

    def _begin_blocking(self, name: str, resource: Resource) -> Steps[None]:
        if is_instant(resource):
            with uninterrupted:
                self._begin_now(name, resource)
            return
        xid = self._xids.branch(self.gtrid)
        branch = yield partial(
            in_thread, self._workers, lambda: self._begin_in_time_left(resource, xid)
        )
        self._join(name, resource, ThreadedBranch(branch, self._end_workers))

    async def __aenter__(self) -> Self:
        self._enter(here())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self._leave()
        if self.status not in OPEN or (kind is not None and self._protocol.of_parent):
            return
        if kind is None:
            await self.commit()
        else:
            why = self._why_short()
            await self.rollback()
            self._explain(error, why)


class AsyncTransactionManager(Uncopied):
    """The asynchronous face of a `TransactionManager`, which it closes at its end.

    Args:
        manager: the manager.
        connections: the number of transactions that use databases at the same time, each of them
            with at most one connection to each. Others wait, as long as their timeout allows. A
            transaction begun within another one needs a turn of its own.
        threads: the number of calls of drivers that block which may be under way at the same time,
            and as many ends of branches; as many as connections unless given.
    """

    def __init__(
        self,
        manager: TransactionManager,
        *,
        connections: int = CONNECTIONS,
        threads: int | None = None,
    ) -> None:
        if not isinstance(manager, TransactionManager):
            raise TypeError(
                f"manager is of type {type(manager).__name__}; expected a TransactionManager"
            )
        connections = integer(connections, "connections", 1, sys.maxsize)
        threads = connections if threads is None else integer(threads, "threads", 1, sys.maxsize)
        self.manager = manager
        self._current = manager._current
        self._workers = ThreadPoolExecutor(threads, "tallystick-transaction")
        # Separate: work may wait for locks that only the end of another transaction releases.
        self._end_workers = ThreadPoolExecutor(threads, "tallystick-transaction-end")
        self._turns = Turns(connections)
        self._closing = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.manager!r}>"

    @property
    def node(self) -> str:
        """The node id, which stands in every global id."""
        return self.manager.node

    @property
    def resources(self) -> dict[str, Resource]:
        """The resources by name."""
        return self.manager.resources

    @property
    def recovered(self) -> RecoveryResult:
        """What the opening of the decision log found."""
        return self.manager.recovered

    @property
    def decisions(self) -> DecisionLog:
        """The decision log; operators settle heuristic outcomes in it."""
        return self.manager.decisions

    @property
    def statistics(self) -> Statistics:
        """Totals since the manager was opened."""
        return self.manager.statistics

    # -- transactions ---------------------------------------------------------------------

    @overload
    def begin(
        self, timeout: float | None = None, *, independent: bool = False
    ) -> AsyncTransaction: ...

    @overload
    def begin(
        self, timeout: float | None = None, *, join: bool
    ) -> AbstractAsyncContextManager[AsyncTransaction]: ...

    def begin(
        self, timeout: float | None = None, *, join: bool = False, independent: bool = False
    ) -> AbstractAsyncContextManager[AsyncTransaction]:
        """Begin a transaction: ``async with manager.begin() as tx``.

        See `TransactionManager.begin` for ``join`` and ``independent``. Tasks that are started in
        the block are not in it: they begin transactions of their own.
        """
        outer = self.manager._outer(AsyncTransaction, join=join, independent=independent)
        if outer is not None:
            return Joined(outer)
        self._require_open()
        return self.manager._begin(
            AsyncTransaction,
            timeout,
            self._workers,
            self._end_workers,
            self._turns,
            self._current,
        )

    async def run(
        self, work: Callable[[Transaction], _Result], timeout: float | None = None
    ) -> _Result:
        """Run ``work(transaction)`` and its commit in one worker thread; returns its result.

        The shortest way for work that blocks. It runs to its end even if the task is cancelled.
        """

        def whole() -> _Result:
            with self.manager.begin(timeout) as transaction:
                return require_value(work(transaction), "the work of run()")

        require_plain(work, "the work of run()")
        self.manager._outer(AsyncTransaction)
        self._require_open()
        await self._turns.take(math.inf)
        try:
            return await drive_awaiting(one_step(partial(in_thread, self._workers, whole)))
        finally:
            self._turns.give_back()

    def _require_open(self) -> None:
        self.manager._require_open()
        if self._closing:
            raise LogClosedError("the transaction manager is closed")

    @overload
    def transactional(
        self, function: Callable[_Parameters, Awaitable[_Result]], /
    ) -> Callable[_Parameters, Coroutine[Any, Any, _Result]]: ...

    @overload
    def transactional(
        self, *, key: IdempotencyKey | None = None, retry: Retry | int = 0
    ) -> Callable[
        [Callable[_Parameters, Awaitable[_Result]]],
        Callable[_Parameters, Coroutine[Any, Any, _Result]],
    ]: ...

    def transactional(
        self,
        function: Callable[..., Any] | None = None,
        *,
        key: IdempotencyKey | None = None,
        retry: Retry | int = 0,
    ) -> Any:
        """Decorate a coroutine function: each call is one transaction, given by `current`.

        A call within a transaction of this manager joins it.

        Args:
            function: the function, if the decorator is used without arguments.
            key: see `TransactionManager.transactional`.
            retry: see there.

        Raises:
            TransactionUsageError: the function is a generator, or a class.
        """

        def decorated(
            found: Callable[..., Awaitable[Any]],
        ) -> Callable[..., Coroutine[Any, Any, Any]]:
            refuse_lazy(found, awaited=True)
            handler = self.manager._handler(found, self.begin, AsyncTransaction, key, retry)
            return decorate_task(handler, found)

        return decorated if function is None else decorated(function)

    def current(self) -> AsyncTransaction:
        """Return the transaction whose block, or `transactional` call, this task is in."""
        return require_running(self._current, AsyncTransaction)

    async def preflight(self) -> Sequence[Problem]:
        """Return what is not set up in the resources, and how to mend it; empty is good."""
        return await self._in_thread(self.manager.preflight)

    # -- recovery -------------------------------------------------------------------------

    async def recover(self) -> RecoveryReport:
        """Settle what is in doubt, as far as it is known; see `TransactionManager.recover`."""
        return await self._in_thread(self.manager.recover)

    async def take_over(
        self, path: str | os.PathLike[str], log: DecisionLog | None = None
    ) -> RecoveryReport:
        """Settle the branches of a dead node; see `TransactionManager.take_over`."""
        return await self._in_thread(lambda: self.manager.take_over(path, log))

    # -- end --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the manager and end the worker threads; a second call does nothing.

        Transactions that are at work may end first, within ``call_timeout`` seconds of the manager,
        except the one whose block this call is in; afterwards no commit begins, their sessions are
        ended, and they roll back.
        """
        self._closing = True
        if self.manager._forked:  # the worker threads are in the parent
            return
        around = inside(self._current)
        own = () if around is None else (around.gtrid,)
        await drive_awaiting(one_step(partial(self._close, own)))

    async def _close(self, own: Collection[bytes]) -> None:
        """Close the manager; the transactions ``own`` do not end meanwhile."""
        live, seconds = self.manager._context.live, self.manager.call_timeout
        await live.wait_until_empty(seconds, own)
        await asyncio.to_thread(self.manager.close)
        await live.wait_until_empty(seconds, own)
        self._workers.shutdown(wait=False)
        if not len(live):  # else they end with the last transaction, which rolls back there
            self._end_workers.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Call what belongs to no transaction: not in a worker, which may wait for its result."""
        return await drive_awaiting(one_step(partial(asyncio.to_thread, work)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
