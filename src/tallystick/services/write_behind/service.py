"""Write-behind: commits are durable at once, and reach their targets a little later.

In: transactions of operations on keys. Out: each in every target, in the order of commits per key,
at least once, and exactly once where the target keeps the numbers it has applied.

    with WriteBehind("spool", targets={"orders": engine}) as behind:
        with behind.begin(reference="order-7") as tx:
            tx.update("orders", {"id": 7}, {"state": "paid"})

A commit is admitted to the backlog and logged as *persisting* (`admission`), durable, passed on in
order (`sequencer`), applied (`targets.workers`), and logged as *persisted* for each target
(`targets.persisted_marks`). Files of the log in which nothing is pending go to the disposer, oldest
first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from tallystick.arguments import choice, flag, integer, mapping, settings_of, text, time_left
from tallystick.callables import checked
from tallystick.disposal.disposers import AnyDisposer, disposer_of
from tallystick.disposal.worker import Disposal, DisposalCounters, require_elsewhere
from tallystick.errors import IncompleteLogError, LogClosedError, copy_error
from tallystick.roles import Operation, PersistEntry, PersistLog, recovery_result
from tallystick.services.write_behind.admission import Admission
from tallystick.services.write_behind.backlog import Backlog, Pending, size_of
from tallystick.services.write_behind.metrics import BacklogSize, Statistics, WriteBehindMetrics
from tallystick.services.write_behind.sequencer import Sequencer
from tallystick.services.write_behind.service_dir import (
    LOG_FOLDER,
    REFUSED_FILE,
    TARGETS_FILE,
    identify,
    open_log,
)
from tallystick.services.write_behind.settings import WriteBehindSettings
from tallystick.services.write_behind.status import PendingTransaction, pending_transaction
from tallystick.services.write_behind.targets.contact import Contacts
from tallystick.services.write_behind.targets.persisted_marks import PersistedMarks
from tallystick.services.write_behind.targets.target import TargetAheadError
from tallystick.services.write_behind.targets.workers import Workers
from tallystick.services.write_behind.transaction import Numbered, WriteBehindTransaction
from tallystick.services.write_behind.unfinished import incomplete, unfinished, unknown_targets
from tallystick.storage.files import FileSystem, absolute, file_system
from tallystick.storage.fork import forked_error, register_in_child
from tallystick.storage.local import LOCAL
from tallystick.storage.opening import (
    Closing,
    closes,
    opening_log,
    opens,
    owns_log,
    require_outside,
)
from tallystick.storage.scheduling import threading, time
from tallystick.storage.signals import uninterrupted
from tallystick.systems.registry import NATIVE


class WriteBehind(Closing):
    """An open write-behind service; a context manager.

    Args:
        path: Its directory; created if missing.
        targets: SQLAlchemy engines, functions or coroutine functions of an entry, or `Target`
            objects, by the names under which the log knows them.
        system: The system of the log: ``tally`` or ``cloudtran``.
        log: An open log instead of ``system``. The service closes it, also if it cannot open.
        disposer: What happens to files of the log that are no longer needed; see
            `tallystick.disposal.disposers.disposer_of`. None: they stay. None goes to a folder
            where a log would be looked for: the service's, or that of its log.
        settings: Limits and delays, or a mapping of names of `WriteBehindSettings`.
        on_incomplete: What happens to transactions that an earlier run left pending. ``fail``:
            opening raises `IncompleteLogError` with their numbers; ``replay``: they are applied,
            before and beside new ones; ``hold``: only looking, `discard` and `replay` are allowed.
        renamed: Maps names of targets in old entries to names in ``targets``.
        strict: Keep the order of all transactions, not only of those on the same keys.
        serializer: Called with a value of a row that has no encoding; returns one that has. See
            `tallystick.values`.
        fs: The file system.

    Raises:
        IncompleteLogError: Transactions are pending, or are for unknown targets.
        CorruptLogError: The log or the identity file is damaged, or they do not belong together.
        LogLockedError: The service is open elsewhere.
        TargetAheadError: A target and the log did not belong together at an earlier opening, and
            still do not, or the target cannot be asked.
    """

    @opens
    @owns_log("last_number")
    def __init__(
        self,
        path: str | os.PathLike[str],
        targets: Mapping[str, Any],
        *,
        system: str = NATIVE,
        log: PersistLog | None = None,
        disposer: AnyDisposer | None = "delete",
        settings: WriteBehindSettings | Mapping[str, Any] | None = None,
        on_incomplete: str = "fail",
        renamed: Mapping[str, str] | None = None,
        strict: bool = False,
        serializer: Callable[[Any], Any] | None = None,
        fs: FileSystem = LOCAL,
    ) -> None:
        choice(on_incomplete, "on_incomplete", ("fail", "replay", "hold"))
        targets, renamed = mapping(targets, "targets"), mapping(renamed or {}, "renamed")
        system, strict = text(system, "system"), flag(strict, "strict")
        if log is not None and not hasattr(log, "last_number"):
            raise TypeError(f"log is of type {type(log).__name__}; expected an open persist log")
        # wrong arguments are found before anything is opened
        fs = file_system(fs)
        chosen = None if disposer is None else disposer_of(disposer, fs)
        self._serializer = checked(serializer, "serializer of a write-behind service")
        self.path = absolute(path)
        require_elsewhere(chosen, posixpath.join(self.path, LOG_FOLDER), self.path)
        self.settings = settings_of(settings, WriteBehindSettings)
        self._backlog = Backlog(self.settings)
        self._metrics = WriteBehindMetrics(self.path, self._backlog.size, self._disposed_files)
        self._workers = Workers(
            targets, self.settings, self._backlog, self._metrics, self._on_applied,
            self._on_broken, strict=strict,
        )  # fmt: skip
        self._disposal: Disposal | None = None
        self._closed = self._forked = False
        self._ahead: TargetAheadError | None = None
        with opening_log(self.path):
            self._log = open_log(self.path, system, fs) if log is None else log
        try:
            last = self._open(fs, system if log is None else None, on_incomplete, renamed)
        except BaseException:
            self._log.close()
            raise
        self._marks = PersistedMarks(self.path, self._log, self._backlog, renamed)
        with opening_log(self.path), contextlib.ExitStack() as undo:
            self._start(undo, last)
            if chosen is not None:
                self._disposal = Disposal(
                    self._log, chosen, fs=fs, note=posixpath.join(self.path, REFUSED_FILE)
                )
                undo.callback(self._disposal.close, 0.0)
            register_in_child(self)
            if not self._holding:
                self._workers.start()
            undo.pop_all()

    def _open(
        self, fs: FileSystem, system: str | None, on_incomplete: str, renamed: Mapping[str, str]
    ) -> int:
        """Load what an earlier run left, and open the targets; return as `_load` does."""
        with opening_log(self.path):
            fs.mkdir(self.path)
            fs.sync_dir(self.path)  # a killed owner may not have
            last = self._load(on_incomplete, renamed)
            identity = identify(self.path, fs, system, self._log)
            contacts = Contacts(posixpath.join(self.path, TARGETS_FILE), fs)
        number = self._log.last_number
        uninterrupted.outside(partial(self._workers.open, identity, number, contacts))
        self._holding = on_incomplete == "hold" and last > 0
        if not self._holding:
            self._require_not_refused()
        return last

    def _require_not_refused(self) -> None:
        try:
            uninterrupted.outside(self._workers.require_not_refused)
        except BaseException:
            self._workers.close()
            raise

    def _start(self, undo: contextlib.ExitStack, last: int) -> None:
        """Start what takes commits; ``undo`` ends it, and closes log and targets."""
        undo.callback(self._log.close)
        undo.callback(self._workers.close)
        self._sequencer = Sequencer(
            self._on_durable,
            self._backlog.forget,
            self._on_broken,
            alone=not self.settings.wait_durable,
        )
        undo.callback(self._sequencer.close)
        undo.callback(self._workers.stop, 0.0)
        self._admission = Admission(
            self._workers, self._log, self._backlog, self._sequencer, self._metrics, last
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r}{self.recovered.suffix}>"

    def _load(self, on_incomplete: str, renamed: Mapping[str, str]) -> int:
        """Load the pending transactions of an earlier run; return the greatest number, or 0."""
        left = list(unfinished(self._log, renamed))
        self.recovered = recovery_result(self.path, self._log, pending=len(left))
        if left and on_incomplete == "fail":
            raise incomplete(self.path, [entry.number for entry, _ in left])
        unknown = {name for _, targets in left for name in targets} - self._workers.keys()
        if unknown and on_incomplete != "hold":
            raise unknown_targets(self.path, unknown, self._workers)
        for entry, targets in left:
            self._backlog.load(entry, targets, size_of(entry.reference, entry.operations))
        self._workers.hand_over([entry for entry, _ in left])
        return left[-1][0].number if left else 0

    # -- commits -----------------------------------------------------------------------------

    def begin(self, reference: str = "") -> WriteBehindTransaction:
        """Begin a transaction, committed at the end of its ``with`` block.

        Args:
            reference: A name by which the application finds it; see `pending`.
        """
        return WriteBehindTransaction(self._commit, reference, self._serializer)

    def commit(
        self,
        operations: Sequence[Operation],
        reference: str = "",
        *,
        targets: Sequence[str] | None = None,
    ) -> int:
        """Commit operations; return when their entry is durable.

        With ``wait_durable=False`` it returns at once. A commit that is interrupted while it waits
        is in the log all the same.

        Args:
            operations: Applied together, in this order.
            reference: A name by which the application finds the transaction.
            targets: Names of targets; default: those that the operations are for.

        Returns:
            The transaction's number.

        Raises:
            BusyError: The backlog was at a limit for ``busy_timeout`` seconds; nothing is written.
            LogPoisonedError: The log failed. The transaction may be there after the next opening.
            TransactionUsageError: A target is unknown, or there is none; nothing is written.
        """
        return self._commit(None, operations, reference, targets)

    def _commit(
        self,
        one: Numbered | None,
        operations: Sequence[Operation],
        reference: str,
        targets: Sequence[str] | None = None,
    ) -> int:
        self._require_open()
        settings, admission = self.settings, self._admission
        request = admission.request(operations, reference, targets)
        number, ticket = admission.submit(request, settings.busy_timeout, one)
        if settings.wait_durable:
            ticket.wait()
        return number

    async def commit_async(
        self,
        operations: Sequence[Operation],
        reference: str = "",
        *,
        targets: Sequence[str] | None = None,
    ) -> int:
        """Commit as `commit` does, without blocking the event loop.

        A task that is cancelled while it waits for the disk has its transaction in the log all the
        same; while it waits at a limit, it may have.
        """
        self._require_open()
        settings, admission = self.settings, self._admission
        request = admission.request(operations, reference, targets)
        admitted = admission.submit_now(request)
        if admitted is None:
            admitted = await asyncio.to_thread(admission.submit, request, settings.busy_timeout)
        number, ticket = admitted
        if settings.wait_durable:
            await ticket
        return number

    def _require_open(self) -> None:
        self._require_own()
        if self._closed:
            raise LogClosedError("the service is closed", file=self.path)
        if self._holding:
            raise IncompleteLogError(
                "earlier transactions are held back", file=self.path, advice="Call replay() first"
            )

    # -- queries -----------------------------------------------------------------------------

    def pending(self, reference: str | None = None) -> list[PendingTransaction]:
        """Return transactions that some target has not applied, by number.

        Args:
            reference: Only those with this reference; None for all.
        """
        self._require_own()
        return [
            self._status(one)
            for one in self._backlog.all()
            if reference is None or one.entry.reference == reference
        ]

    def find(self, number: int) -> PendingTransaction | None:
        """Return a pending transaction by its number; None if there is none."""
        self._require_own()
        one = self._backlog.get(_number(number))
        return None if one is None else self._status(one)

    def _status(self, one: Pending) -> PendingTransaction:
        number = one.entry.number
        return pending_transaction(
            one.entry,
            {
                name: self._workers[name].condition_of(number)
                if name in self._workers
                else ("unknown", 0, "no target of this name was given")
                for name in list(one.left)
            },
        )

    @property
    def backlog(self) -> BacklogSize:
        """Number, bytes and age of the pending transactions."""
        self._require_own()
        return self._backlog.size()

    @property
    def statistics(self) -> Statistics:
        """Totals since opening."""
        return self._metrics.statistics

    @property
    def disposals(self) -> DisposalCounters:
        """The counters of the disposer."""
        return DisposalCounters() if self._disposal is None else self._disposal.counters

    def _disposed_files(self) -> int:
        return self.disposals.disposed

    def wait(self, number: int, timeout: float | None = None) -> bool:
        """Return True once every target has applied it, False after ``timeout`` seconds.

        Raises:
            KeyError: no transaction has this number.
            TransactionUsageError: a target called it, without a timeout.
        """
        self._require_own()
        self._require_end(timeout, "wait")
        number, seconds = _number(number), time_left(timeout, "timeout")
        if not 0 < number <= self._log.last_number:
            raise KeyError(number)
        return self._backlog.wait_gone(number, seconds)

    def drain(self, timeout: float | None = None) -> bool:
        """Return True once nothing is pending, False after ``timeout`` seconds.

        Raises `TransactionUsageError` if a target called it, without a timeout.
        """
        self._require_own()
        self._require_end(timeout, "drain")
        return self._backlog.wait_empty(time_left(timeout, "timeout"))

    # -- for operators -------------------------------------------------------------------------

    def discard(self, number: int) -> None:
        """Remove a pending transaction for good, durably.

        A call of a target that is running may still apply it. Raises `KeyError` if the transaction
        is not pending.
        """
        self._require_own()
        number = _number(number)
        with uninterrupted:
            self._log.discard(number).wait()
            self._workers.discard(number)

    def retry(self, number: int) -> None:
        """Try a transaction that was set aside again. Raises `KeyError` if it was not."""
        self._require_own()
        number = _number(number)
        with uninterrupted:
            retried = [queue.retry(number) for queue in self._workers.values()]
        if True not in retried:
            raise KeyError(number)

    def replay(self, timeout: float | None = None) -> list[PendingTransaction]:
        """Apply what an earlier run left (``on_incomplete="hold"``).

        Args:
            timeout: Seconds for which an unreachable target is tried; None: once.

        Returns:
            What is still pending: nothing, or what an operator has to look at.

        Raises:
            IncompleteLogError: Some of it is for unknown targets; nothing is applied.
            OSError: No other thread can be started; call it again once one can.
            TargetAheadError: A target and the log do not belong together; it gets nothing.
            TransactionUsageError: A target called it, without a timeout.
        """
        self._require_own()
        self._require_end(timeout, "replay")
        timeout = time_left(timeout, "timeout")
        unknown = {name for one in self._backlog.all() for name in one.left} - self._workers.keys()
        if unknown:
            raise unknown_targets(self.path, unknown, self._workers)
        self._workers.require_not_refused()
        deadline = None if timeout is None else time.monotonic() + timeout
        self._workers.start()
        self._drain(deadline, wait_for_target=timeout is not None)
        if self._ahead is not None:
            raise copy_error(self._ahead)
        self._holding = False
        return self.pending()

    def _drain(self, deadline: float | None, *, wait_for_target: bool) -> None:
        """Wait until nothing is pending, no queue makes progress, or the deadline."""
        while not self._backlog.wait_empty(0.02):
            uninterrupted.interruptible(bool)  # a handler that is due runs, also while it closes
            late = deadline is not None and time.monotonic() > deadline
            if late or not self._workers.progresses(wait_for_target=wait_for_target):
                return

    # -- life ----------------------------------------------------------------------------------

    @closes
    def close(self, timeout: float | None = None) -> None:
        """Refuse commits, apply what can be applied in time, and stop.

        What is still pending is there at the next opening. A second call does nothing, nor does one
        in a forked child. A signal ends the time to apply; it is closed all the same.

        Args:
            timeout: Seconds to apply; default: the setting ``close_timeout``.

        Raises:
            TransactionUsageError: a target or the disposer called it in a thread of the service.
        """
        if self._closed or self._forked:
            return
        self._require_end(None, "close", () if self._disposal is None else (self._disposal.thread,))
        left = time_left(self.settings.close_timeout if timeout is None else timeout, "timeout")
        self._closed = True
        deadline = time.monotonic() + (left or 0.0)
        self._backlog.refuse(LogClosedError("the service is closed", file=self.path))
        with contextlib.ExitStack() as steps:  # the last one first, whatever one of them raises
            steps.callback(self._workers.close)
            steps.callback(self._close_log)
            steps.callback(lambda: self._workers.stop(deadline))
            self._sequencer.close()
            try:
                self._drain(deadline, wait_for_target=False)
            except BaseException:
                deadline = time.monotonic()
                raise

    def _require_end(
        self, timeout: float | None, what: str, others: Iterable[threading.Thread] = ()
    ) -> None:
        """Require that a call which waits has a limit, or does not wait for its own thread."""
        if timeout is None:
            threads = (*self._workers.threads(), *others)
            require_outside(threads, f"{what} of a write-behind service")

    def _close_log(self) -> None:
        try:
            self._log.sync().wait()
        finally:
            try:
                if self._disposal is not None:
                    self._disposal.close(self.settings.dispose_on_close_seconds)
            finally:
                self._log.close()

    def forked(self) -> None:
        """Refuse every call in a forked child: everything belongs to the parent."""
        self._forked = True

    def _require_own(self) -> None:
        if self._forked:
            raise forked_error(self.path)

    # -- called from other threads ---------------------------------------------------------------

    def _on_durable(self, entries: Sequence[PersistEntry]) -> None:
        """Pass durable entries, in order, to the workers."""
        with self._backlog.own_step():
            self._metrics.committed(len(entries))
            self._workers.hand_over(entries)

    def _on_applied(self, target: str, numbers: Sequence[int]) -> None:
        """Mark transactions that a target has applied."""
        with self._backlog.own_step():
            self._marks.applied(target, numbers)
            if self._disposal is not None:
                self._disposal.prompt()
        settled = self._workers[target].target.settled
        self._marks.settle(target, len(numbers), settled, self._admission.last_number)

    def _on_broken(self, error: BaseException) -> None:
        """Stop the service: one of its threads cannot go on."""
        if isinstance(error, TargetAheadError):
            self._ahead = error
        self._backlog.refuse(
            LogClosedError(
                f"the service has stopped: {error!r}",
                file=self.path,
                advice="Close it and open it again: what is in the log is not lost",
            )
        )


def _number(number: object) -> int:
    """Return the number of a transaction. Raises `TypeError` or `ValueError` for what is none."""
    return integer(number, "number", -sys.maxsize, sys.maxsize)
