"""The transaction manager: begins transactions, keeps the living, runs recovery.

In: resources by name and a decision log. Out: `Transaction` objects that commit over
several resources or over none, across crashes of this process and of the resources.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from tallystick.errors import LogClosedError, TransactionUsageError
from tallystick.roles import DecisionLog
from tallystick.services.transactions.background import BackgroundRecovery
from tallystick.services.transactions.coordinator_dir import check_home, open_home
from tallystick.services.transactions.global_transaction import GlobalTransaction
from tallystick.services.transactions.metrics import Statistics, TransactionMetrics
from tallystick.services.transactions.recovery import Recovery, RecoveryReport
from tallystick.services.transactions.resource import Problem, Resource, ResourceUnreachable
from tallystick.services.transactions.resources import adapt
from tallystick.services.transactions.transaction import Status, Transaction
from tallystick.services.transactions.xids import XidFactory, time_of

_log = logging.getLogger("tallystick.transactions")
_current: ContextVar[Transaction | None] = ContextVar("tallystick_transaction", default=None)

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Face = TypeVar("_Face", bound=GlobalTransaction)


class TransactionManager:
    """Atomic commit over several resources, by presumed abort.

    ``path`` is the directory of the coordinator: its node id and its decision log (the
    native one unless ``log`` gives another). ``resources`` maps unique names to `Resource`
    objects or to what `resources.adapt` understands: connection URLs, SQLAlchemy engines,
    stores. ``timeout`` and ``orphan_interval`` are in seconds; ``recovery_interval`` is that
    of the background recovery, None for none. ``close_resources=False`` leaves them open at
    `close`, for resources that others use too. ``on_step`` is told each step of commit and
    recovery: crash tests stop the process there. A context manager.

    Raises `LogLockedError` if another process coordinates from this directory, and
    `CorruptLogError` if the log cannot be read in full.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        resources: Mapping[str, Any],
        *,
        node: str | None = None,
        log: DecisionLog | None = None,
        timeout: float = 60.0,
        orphan_interval: float = 20.0,
        recovery_interval: float | None = 30.0,
        close_resources: bool = True,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        self._home = open_home(path, node, log)
        self.decisions: DecisionLog = self._home.decisions
        self.node = self._home.node
        self.xids = XidFactory(self.node)
        self.timeout = timeout
        self.orphan_interval = orphan_interval
        self.metrics = TransactionMetrics(self.node, self._in_doubt_now)
        # Each is touched in one go: who freezes a transaction does so before it leaves the living.
        self._live: dict[bytes, GlobalTransaction] = {}
        self._frozen: set[bytes] = set()
        self._recovering = threading.Lock()
        self._last_report = RecoveryReport()
        self._on_step = on_step
        self._close_resources = close_resources
        # Presumed abort needs no notes; a log of another system has operators used to them.
        self.keeps_notes = log is not None
        self._closed = False
        self.resources: dict[str, Resource] = {}
        try:
            for name, thing in resources.items():
                self.resources[name] = adapt(name, thing)
        except BaseException:
            self._home.close()
            raise
        self._background = BackgroundRecovery(self.recover, recovery_interval)

    # -- transactions ---------------------------------------------------------------------

    def begin(self, timeout: float | None = None) -> Transaction:
        """Begin a transaction for this thread; ``timeout`` in seconds until commit."""
        return self.begin_as(Transaction, timeout)

    def transactional(
        self, function: Callable[_Parameters, _Result]
    ) -> Callable[_Parameters, _Result]:
        """Decorator: the call is one transaction, found by `current`; calls within it join."""

        @functools.wraps(function)
        def call(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            if _current.get() is not None:
                return function(*args, **kwargs)
            with self.begin() as transaction:
                token = _current.set(transaction)
                try:
                    return function(*args, **kwargs)
                finally:
                    _current.reset(token)

        return call

    @staticmethod
    def current() -> Transaction:
        """The transaction of the `transactional` call that is running."""
        transaction = _current.get()
        if transaction is None:
            raise TransactionUsageError(
                "no transaction is running here",
                advice="Call it within a function decorated with @manager.transactional",
            )
        return transaction

    def resource(self, name: str) -> Resource:
        """The resource of that name. Raises `TransactionUsageError`."""
        try:
            return self.resources[name]
        except KeyError:
            raise TransactionUsageError(
                f"there is no resource {name!r}",
                expected=f"one of {sorted(self.resources)}",
                advice="Give it to the manager under that name",
            ) from None

    def preflight(self) -> Sequence[Problem]:
        """What is not set up in the resources, and how to mend it; empty is good."""
        problems: list[Problem] = []
        for name, resource in self.resources.items():
            try:
                problems.extend(resource.preflight())
            except ResourceUnreachable as answer:
                problems.append(Problem(name, str(answer), "Check its address and that it runs"))
        return problems

    # -- recovery -------------------------------------------------------------------------

    def recover(self) -> RecoveryReport:
        """Settle what is in doubt, as far as it is known; see `recovery`. Any time, any thread.

        Raises `LogPoisonedError` if the log failed: reopen it first.
        """
        self._require_open()
        with self._recovering:
            self._last_report = Recovery(self).run()
        return self._last_report

    def take_over(
        self, path: str | os.PathLike[str], log: DecisionLog | None = None
    ) -> RecoveryReport:
        """Settle the branches of a dead node from its directory, which is locked meanwhile.

        ``log`` is its decision log if that is not the native one. Raises `LogLockedError` if
        that node is alive, however slow, and `TransactionUsageError` if no node was ever there.
        """
        self._require_open()
        check_home(path)
        with TransactionManager(
            path,
            self.resources,
            log=log,
            orphan_interval=self.orphan_interval,
            recovery_interval=None,
            close_resources=False,
            on_step=self._on_step,
        ) as dead:
            return dead.recover()

    def _in_doubt_now(self) -> tuple[int, float]:
        left = [branch for branch in self._last_report.left if branch.why != "foreign"]
        now = self.xids.clock()
        begun = [time_of(branch.xid.gtrid) for branch in left]
        ages = [(now - moment) / 1000 for moment in begun if moment is not None]
        return len(left), max(ages, default=0.0)

    @property
    def statistics(self) -> Statistics:
        """Totals since the manager was opened."""
        return self.metrics.statistics

    # -- for the rooms beside this one ------------------------------------------------------

    def begin_as(
        self, face: Callable[..., _Face], timeout: float | None = None, *more: object
    ) -> _Face:
        """`begin` for a face: what ``face(manager, gtrid, timeout, *more)`` makes."""
        self._require_open()
        transaction = face(self, self.xids.gtrid(), timeout or self.timeout, *more)
        self._live[transaction.gtrid] = transaction
        return transaction

    def is_live(self, gtrid: bytes) -> bool:
        """True while a transaction of this process is at work, or frozen by a failed log."""
        return gtrid in self._live or gtrid in self._frozen

    def freeze(self, gtrid: bytes) -> None:
        """Keep recovery of this process away: whether it is decided only the reopened log knows."""
        self._frozen.add(gtrid)

    def ended(self, transaction: GlobalTransaction) -> None:
        """The transaction has left the living."""
        self._live.pop(transaction.gtrid, None)

    def wake_recovery(self) -> None:
        """Something was left to recovery: let it look soon."""
        self._background.wake()

    def guarded(self, hook: Callable[[Status], object], status: Status) -> None:
        """Call a hook whose failure must not change the outcome."""
        try:
            hook(status)
        except Exception:  # a hook may raise anything; the transaction is over
            _log.exception("a hook after completion failed")

    def step(self, what: str, resource: str | None = None) -> None:
        """Tell the observer of steps; crash tests stop the process there."""
        if self._on_step is not None:
            self._on_step(what if resource is None else f"{what} {resource}")

    # -- life -------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the background recovery, close resources and log. Transactions still open
        are rolled back by their resources."""
        if self._closed:
            return
        self._closed = True
        self._background.stop()
        if self._close_resources:
            for resource in self.resources.values():
                resource.close()
        self._home.close()

    def _require_open(self) -> None:
        if self._closed:
            raise LogClosedError("the transaction manager is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
