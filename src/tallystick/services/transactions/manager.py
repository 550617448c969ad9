"""The transaction manager: begins transactions, commits them over its resources, runs recovery.

In: resources by name and a decision log. Out: `Transaction` objects that commit over
several resources or over none, across crashes of this process and of the resources.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar, overload

from tallystick.arguments import flag, mapping, seconds
from tallystick.callables import checked
from tallystick.errors import LogClosedError, TransactionUsageError
from tallystick.posix import after_fork_in_child
from tallystick.printable import logger
from tallystick.roles import DecisionLog, SharedDecisionLog, recovery_result
from tallystick.roles.coordinator_files import DECIDES, PREPARES, RESOURCES
from tallystick.services.transactions.coordinator_dir import (
    check_coordinator_dir,
    open_coordinator_dir,
)
from tallystick.services.transactions.deadlines import Reaper, TimedResources
from tallystick.services.transactions.messaging.handlers import Handler, decorate, refuse_lazy
from tallystick.services.transactions.messaging.keys import IdempotencyKey
from tallystick.services.transactions.messaging.retry import Retry
from tallystick.services.transactions.metrics import Statistics, TransactionMetrics
from tallystick.services.transactions.recovery import (
    BackgroundRecovery,
    Recovery,
    RecoveryReport,
)
from tallystick.services.transactions.resource import (
    Problem,
    Resource,
    ResourceUnreachable,
    is_last_resource,
    require_one_last,
)
from tallystick.services.transactions.resources import Adaptable, adapt
from tallystick.services.transactions.steps import observer
from tallystick.services.transactions.tracing import Tracing
from tallystick.services.transactions.transaction import (
    Current,
    GlobalTransaction,
    Joined,
    Transaction,
    inside,
)
from tallystick.services.transactions.two_phase_commit import (
    CommitContext,
    LiveTransactions,
    TwoPhaseCommit,
)
from tallystick.services.transactions.xids import XidFactory
from tallystick.storage.files import FileSystem, absolute, file_system
from tallystick.storage.local import LOCAL
from tallystick.storage.opening import Closing, closes, opening_log, opens, owns_log
from tallystick.storage.scheduling import threading

_log = logger("tallystick.transactions")

_FACES = " with a manager of the same kind, asynchronous or not"

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Transaction = TypeVar("_Transaction", bound=GlobalTransaction)


class TransactionManager(Closing):
    """Atomic commit over several resources, by presumed abort; a context manager.

    Args:
        path: the directory of the coordinator, with its node id and its decision log.
        resources: unique names and `Resource` objects, or what `resources.adapt` understands:
            connection URLs, SQLAlchemy engines, stores. At most one database among them that cannot
            prepare, as SQLite.
        node: the node id of a new directory; of an old one, the id that it must have.
        log: the decision log, if it is not the native one of the directory. The manager closes it,
            also if it cannot open.
        shared: other processes may coordinate from this directory, too, each of them with this
            option and with resources of the same names: the workers of a server, say. What one
            leaves behind when it dies, the recovery of the others settles.
        timeout: seconds that a transaction may take for its work and the first phase of its commit,
            unless `begin` says so. Then its sessions are ended, and it rolls back.
        call_timeout: seconds for calls of a resource in the second phase, in rollback and in
            recovery, and for `close`; what has no answer is left to recovery. Not more than the
            ``timeout`` of the transaction, but a second at least.
        orphan_interval: age in seconds from which undecided branches are rolled back; those from
            before the manager was opened are rolled back at once, unless ``log`` is given.
        recovery_interval: seconds between passes of background recovery; None for none.
        close_resources: close the resources at `close`; False for resources that others use, too.
        on_step: called with the name of each step of commit and recovery; crash tests stop the
            process there.
        fs: the file system of the directory; tests give a simulated one.

    Attributes:
        node: the node id, which stands in every global id.
        resources: the resources by name.
        directory: the identities of databases and the decisions that are closed.
        decisions: the decision log; operators settle heuristic outcomes in it.

    Raises:
        LogLockedError: another process coordinates from this directory.
        CorruptLogError: the log cannot be read in full.
        TransactionUsageError: the directory has another node id, or a resource cannot take part.
    """

    @opens
    @owns_log("open_decisions")
    def __init__(
        self,
        path: str | os.PathLike[str],
        resources: Mapping[str, Adaptable],
        *,
        node: str | None = None,
        log: DecisionLog | None = None,
        shared: bool = False,
        timeout: float = 60.0,
        call_timeout: float = 10.0,
        orphan_interval: float = 20.0,
        recovery_interval: float | None = 30.0,
        close_resources: bool = True,
        on_step: Callable[[str], None] | None = None,
        fs: FileSystem = LOCAL,
    ) -> None:
        path, resources = absolute(path), mapping(resources, "resources")
        fs, shared = file_system(fs), flag(shared, "shared")
        self.timeout = seconds(timeout, "timeout", positive=True)
        self.call_timeout = seconds(call_timeout, "call_timeout", positive=True)
        self.orphan_interval = seconds(orphan_interval, "orphan_interval")
        if recovery_interval is not None:
            recovery_interval = seconds(recovery_interval, "recovery_interval", positive=True)
        self._close_resources = flag(close_resources, "close_resources")
        checked(on_step, "on_step")
        with opening_log(path):
            self.directory = open_coordinator_dir(path, node, log, shared=shared, fs=fs)
        self._fs = fs
        self.node = self.directory.node
        self.decisions: DecisionLog = self.directory.decisions
        self.recovered = recovery_result(
            os.fspath(path), self.decisions, open_decisions=len(self.decisions.open_decisions())
        )
        self._xids = self._xid_factory()
        self._dead_before = self._begin_of_time(log)
        self._on_step = on_step
        self._recovering = threading.Lock()
        self._kept: set[bytes] = set()
        self._last_report = RecoveryReport()
        self._background = BackgroundRecovery(self._recover, recovery_interval)
        # Presumed abort needs no notes; operators of another system's log expect them.
        self._context = self._commit_context(on_step, writes_notes=log is not None)
        self._current: Current = ContextVar("tallystick_transaction", default=None)
        self._forked = self._closed = False
        self.resources = self._adapted(resources)
        self._timed = TimedResources(self.resources, call_timeout)
        _managers.add(self)
        self._reaper = Reaper(self._context.live, self.resources.values(), call_timeout)
        self._start(path)

    def _begin_of_time(self, log: DecisionLog | None) -> int:
        """Return the time in milliseconds before which every process of this node is dead.

        The native log's lock of the directory proves it; of another log nothing is known.
        """
        alone = log is None and not isinstance(self.decisions, SharedDecisionLog)
        return self._xids.clock() if alone else 0

    def _adapted(self, resources: Mapping[str, Adaptable]) -> dict[str, Resource]:
        try:
            adapted = {name: adapt(name, thing) for name, thing in resources.items()}
            require_one_last(adapted)
            self.directory.resources.note(
                {
                    name: DECIDES if is_last_resource(one) else PREPARES
                    for name, one in adapted.items()
                }
            )
        except BaseException:
            self.directory.close()
            raise
        return adapted

    def _start(self, path: str | os.PathLike[str]) -> None:
        """Start the threads."""
        try:
            with opening_log(path):
                self._reaper.start()
                self._background.start()
        except BaseException:
            self.close()
            raise

    def _xid_factory(self) -> XidFactory:
        if isinstance(self.decisions, SharedDecisionLog):
            return XidFactory(
                self.node, member=self.decisions.member, since=self.decisions.since_ms
            )
        return XidFactory(self.node)

    def _commit_context(
        self, on_step: Callable[[str], None] | None, *, writes_notes: bool
    ) -> CommitContext:
        live = LiveTransactions()
        metrics = TransactionMetrics(
            self.node,
            in_doubt=lambda: self._last_report.in_doubt(self._xids.clock()),
            active=live.__len__,
        )
        return CommitContext(
            decisions=self.decisions,
            live=live,
            metrics=metrics,
            tracing=Tracing(self.node, metrics, self.directory.traces),
            observe=observer(on_step),
            recover_soon=self._background.wake,
            writes_notes=writes_notes,
            call_timeout=self.call_timeout,
            committed=self.directory.ends.add,
            finish=self.directory.finish,
        )

    def __repr__(self) -> str:
        state = "forked" if self._forked else "closed" if self._closed else "open"
        names = ", ".join(self.resources) or "no resource"
        return f"<{type(self).__name__} {self.node!r}: {state}, {names}{self.recovered.suffix}>"

    # -- transactions ---------------------------------------------------------------------

    @overload
    def begin(self, timeout: float | None = None, *, independent: bool = False) -> Transaction: ...

    @overload
    def begin(
        self, timeout: float | None = None, *, join: bool
    ) -> AbstractContextManager[Transaction]: ...

    def begin(
        self, timeout: float | None = None, *, join: bool = False, independent: bool = False
    ) -> AbstractContextManager[Transaction]:
        """Begin a transaction. Within its ``with`` block it is `current`.

        Args:
            timeout: seconds until commit.
            join: within the block of another transaction of this manager, take part in that one;
                an exception that leaves the block marks the whole for rollback. Elsewhere, begin.
            independent: begin another transaction within the block of the first. It does not see
                the other's work, waits for its locks, and is committed whatever becomes of it.

        Raises:
            TransactionUsageError: this thread or task is in the block of a transaction of this
                manager, and neither was chosen.
        """
        if join or self._current.get() is not None:
            outer = self._outer(Transaction, join=join, independent=independent)
            if outer is not None:
                return Joined(outer)
        return self._begin(Transaction, timeout, self._current)

    def _outer(
        self, face: type[_Transaction], *, join: bool = False, independent: bool = False
    ) -> _Transaction | None:
        """Return the transaction of the class ``face`` to be joined; None where one is begun."""
        if join and independent:
            raise TransactionUsageError("a transaction that joins another is not independent")
        found = None if independent else inside(self._current)
        if found is None:
            return None
        self._require_open()
        if join and isinstance(found, face):
            return found
        raise TransactionUsageError(
            f"{found!r} is running here",
            expected="a thread or task outside of its block",
            advice=f"begin(join=True) takes part in it{'' if isinstance(found, face) else _FACES}; "
            "begin(independent=True) begins another one, which may wait for its locks for ever; "
            "current().rollback() of the manager ends one whose block was never left",
        )

    def _begin(
        self, face: Callable[..., _Transaction], timeout: float | None, *more: object
    ) -> _Transaction:
        """Begin a transaction of the class ``face``, made with the arguments ``more``."""
        self._require_open()
        limit = self.timeout if timeout is None else seconds(timeout, "timeout", positive=True)
        protocol = TwoPhaseCommit(self._xids.gtrid(), self._context, limit)
        return face(protocol, self.resources, self._xids, *more)

    @overload
    def transactional(
        self, function: Callable[_Parameters, _Result], /
    ) -> Callable[_Parameters, _Result]: ...

    @overload
    def transactional(
        self, *, key: IdempotencyKey | None = None, retry: Retry | int = 0
    ) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]: ...

    def transactional(
        self,
        function: Callable[..., Any] | None = None,
        *,
        key: IdempotencyKey | None = None,
        retry: Retry | int = 0,
    ) -> Any:
        """Decorate a function: each call is one transaction, given by `current`.

        A call within a transaction of this manager joins it: if it raises, the whole is rolled
        back, even where its caller handles the exception.

        Args:
            function: the function, if the decorator is used without arguments.
            key: keeps the outcome of each request in a database, in the same transaction: a call
                with the same key is answered with it.
            retry: how often a call is repeated after a deadlock or a serialisation failure.

        Raises:
            TransactionUsageError: the function is a coroutine function or a generator: a call of it
                ends before its body runs. Or it is a class.
        """

        def decorated(found: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
            refuse_lazy(found)
            return decorate(self._handler(found, self.begin, Transaction, key, retry), found)

        return decorated if function is None else decorated(function)

    def _handler(
        self,
        function: Callable[..., Any],
        begin: Callable[[], Any],
        face: type[GlobalTransaction],
        key: IdempotencyKey | None,
        retry: Retry | int,
    ) -> Handler:
        def joined() -> Joined[GlobalTransaction] | None:
            outer = self._outer(face, join=True)
            return None if outer is None else Joined(outer)

        return Handler(function, begin, joined, key, retry, self.resources)

    def current(self) -> Transaction:
        """Return the transaction whose block, or `transactional` call, this thread is in."""
        return require_running(self._current, Transaction)

    def preflight(self) -> Sequence[Problem]:
        """Return what is not set up in the resources, and how to mend it; empty is good."""
        self._require_open()
        problems = [
            Problem(name, text, "Correct its address")
            for name, text in list(self._context.others.items())
        ]
        for name, resource in self._timed.now().items():
            try:
                problems.extend(resource.preflight())
            except ResourceUnreachable as answer:
                problems.append(Problem(name, str(answer), "Check its address and that it runs"))
        return problems

    # -- recovery -------------------------------------------------------------------------

    def recover(self) -> RecoveryReport:
        """Settle what is in doubt, as far as it is known; see `recovery`. Any time, any thread.

        The background recovery tries again soon what is left.

        Raises:
            LogPoisonedError: the log failed; reopen it first.
            LogUnreadableError: the directory's small files cannot be read or written.
        """
        report = self._recover()
        if not report.clean:
            self._background.wake()
        return report

    def _recover(self) -> RecoveryReport:
        self._require_open()
        with self._recovering:
            self._last_report = Recovery(
                xids=self._xids,
                decisions=self.decisions,
                resources=self._timed.now(),
                live=self._context.live,
                orphan_interval=self.orphan_interval,
                metrics=self._context.metrics,
                observe=self._context.observe,
                tracing=self._context.tracing,
                identities=self.directory.identities,
                dead_before=self._dead_before,
                lost_before=self.directory.lost_before,
                known_resources=self.directory.resources.read,
                closed=self.directory.closed,
                others=self._context.others,
                kept=self._kept,
                record_ends=self.directory.ends.record,
                finish=self.directory.finish,
                log=self.recovered,
            ).run()
        return self._last_report

    def take_over(
        self, path: str | os.PathLike[str], log: DecisionLog | None = None
    ) -> RecoveryReport:
        """Settle the branches of a dead node from its directory, which is locked meanwhile.

        Args:
            path: the directory of the dead node.
            log: its decision log, if that is not the native one.

        Raises:
            LogLockedError: that node is alive, however slow.
            TransactionUsageError: the directory was never that of a node.
        """
        self._require_open()
        with opening_log(path):
            check_coordinator_dir(path, self._fs)
            theirs = RESOURCES.read(self._fs, absolute(path))
        # A last resource that the dead node never had has nothing of its decisions. An earlier
        # version has not noted which it had.
        resources = {
            name: one
            for name, one in self.resources.items()
            if not theirs or name in theirs or not is_last_resource(one)
        }
        with TransactionManager(
            path,
            resources,
            log=log,
            call_timeout=self.call_timeout,
            orphan_interval=self.orphan_interval,
            recovery_interval=None,
            close_resources=False,
            on_step=self._on_step,
            fs=self._fs,
        ) as dead:
            return dead.recover()

    @property
    def statistics(self) -> Statistics:
        """Totals since the manager was opened."""
        return self._context.metrics.statistics

    # -- end --------------------------------------------------------------------------------

    @closes
    def close(self) -> None:
        """Stop the background recovery, close resources and log.

        Commits that have begun are waited for, each of these steps for ``call_timeout`` seconds at
        most; a signal ends such a wait, and the rest of them is done. From now on none begins, and
        the sessions of transactions that are still open are ended: they roll back, also one whose
        block this call is in. A second call does nothing.
        """
        if self._closed:
            return
        self._closed = self._context.live.closing = True
        with ExitStack() as steps:  # the last one first, whatever one of them raises
            steps.callback(self.directory.close)
            if self._close_resources:
                steps.callback(self._close_all)
            steps.callback(self._abort_all)
            steps.callback(self._context.live.wait_for_ends, self.call_timeout)
            self._background.stop(self.call_timeout)

    def _abort_all(self) -> None:
        self._reaper.stop()
        self._context.live.abort_all()
        self._context.live.discard_of_this_thread()
        self._reaper.end_calls(math.inf)

    def _close_all(self) -> None:
        with ExitStack() as steps:  # the last one first, whatever one of them raises
            for name, resource in reversed(self._timed.now().items()):
                steps.callback(self._close_one, name, resource)

    def _close_one(self, name: str, resource: Resource) -> None:
        try:
            resource.close()
        except ResourceUnreachable as answer:
            _log.warning("a resource does not close: %s", answer, extra={"resource": name})

    def _require_open(self) -> None:
        if self._forked:
            raise TransactionUsageError(
                "this process was forked from the one that opened the transaction manager",
                advice="Open a manager in each process after the fork, each with its directory",
            )
        if self._closed:
            raise LogClosedError("the transaction manager is closed")

    def _leave_to_parent(self) -> None:
        """Refuse all work in a child process: connections and log belong to its parent."""
        self._forked = self._closed = True
        self._context.live.leave_to_parent()


_managers: weakref.WeakSet[TransactionManager] = weakref.WeakSet()


def _after_fork() -> None:
    for manager in list(_managers):
        manager._leave_to_parent()


after_fork_in_child(_after_fork)


def require_running(current: Current, face: type[_Transaction]) -> _Transaction:
    """Return the transaction of a running call. Raises `TransactionUsageError` if there is none."""
    found = inside(current)
    if not isinstance(found, face):
        raise TransactionUsageError(
            "no transaction is running here",
            advice="Call it within a 'with' block of begin(), or a function decorated with "
            "@manager.transactional, in the same thread or task; or pass the transaction on",
        )
    return found
