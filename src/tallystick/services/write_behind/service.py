"""Write-behind: commits are durable at once, and reach their targets a little later.

In: transactions of operations on keys. Out: each in every target, in the order of commits per
key, at least once, and exactly once where the target keeps the numbers it has applied.

    with WriteBehind("spool", targets={"orders": engine}) as behind:
        with behind.begin(reference="order-7") as tx:
            tx.update("orders", {"id": 7}, {"state": "paid"})

A commit takes the way: room in the backlog, *persisting* in the log, durable, to the lanes of
its targets, applied, *persisted* per target. Files of the log that hold nothing pending any more
go to the disposer, oldest first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from tallystick.errors import (
    BusyError,
    IncompleteLogError,
    LogClosedError,
    TallystickError,
    TransactionUsageError,
)
from tallystick.services.disposal import Disposal, DisposalCounters
from tallystick.services.disposers import AnyDisposer, disposer_of
from tallystick.services.roles import Operation, PersistEntry, PersistLog
from tallystick.services.write_behind.backlog import Backlog, Pending, size_of
from tallystick.services.write_behind.home import open_log, read_identity
from tallystick.services.write_behind.lane import Lane
from tallystick.services.write_behind.metrics import BacklogSize, Statistics, WriteBehindMetrics
from tallystick.services.write_behind.sequencer import Sequencer, Submitted
from tallystick.services.write_behind.settings import WriteBehindSettings
from tallystick.services.write_behind.status import PendingTransaction, pending_transaction
from tallystick.services.write_behind.target import target_of
from tallystick.services.write_behind.transaction import WriteBehindTransaction
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL

SETTLE_COUNT = 5_000
"""Applied transactions after which targets may forget numbers."""
NUMBERS_SHOWN_MAX = 20

_log = logging.getLogger("tallystick.write_behind")


class WriteBehind:
    """An open write-behind service; a context manager. See the module.

    ``targets`` are SQLAlchemy engines, functions or coroutine functions of an entry, or
    `Target` objects, by the names that the log knows them by; ``renamed`` maps names of old
    entries to these. ``system`` is ``tally`` or ``cloudtran``, or ``log`` an open log.
    ``disposer``: see `tallystick.services.disposers.disposer_of`.

    What an earlier run left pending makes opening raise `IncompleteLogError` with the numbers;
    ``on_incomplete="replay"`` applies it at once, before and beside new work, ``"hold"`` opens
    for looking, `discard` and `replay` only. Raises what opening the log raises.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        targets: Mapping[str, Any],
        *,
        system: str = "tally",
        log: PersistLog | None = None,
        disposer: AnyDisposer | None = "delete",
        settings: WriteBehindSettings | None = None,
        on_incomplete: str = "fail",
        renamed: Mapping[str, str] | None = None,
        strict: bool = False,
        fs: FileSystem = LOCAL,
    ) -> None:
        if on_incomplete not in ("fail", "replay", "hold"):
            raise ValueError(f"on_incomplete is {on_incomplete!r}; expected fail, replay or hold")
        self.path = os.fspath(path)
        self.settings = settings or WriteBehindSettings()
        self._renamed = dict(renamed or {})
        self._order = threading.Lock()
        self._backlog = Backlog(self.settings)
        self._metrics = WriteBehindMetrics(self.path, self._backlog.size, self._disposed_files)
        self._lanes = {
            name: Lane(
                name, target_of(thing), self.settings, self._held, self._metrics, strict=strict
            )
            for name, thing in targets.items()
        }
        self._disposal: Disposal | None = None
        self._closed = False
        self._since_settled = dict.fromkeys(self._lanes, 0)
        self._last_number = 0
        fs.mkdir(self.path)
        self._log = open_log(self.path, system, fs) if log is None else log
        try:
            left = self._load(on_incomplete)
            identity = read_identity(self.path, fs)
            for lane in self._lanes.values():
                lane.target.open(identity)
        except BaseException:
            self._log.close()
            raise
        self._sequencer = Sequencer(self._on_durable, self._backlog.forget)
        if disposer is not None:
            self._disposal = Disposal(self._log, disposer_of(disposer, fs), fs=fs)
        self._holding = on_incomplete == "hold" and left > 0
        self._started = False
        if not self._holding:
            self._start()

    # -- commits -----------------------------------------------------------------------------

    def begin(self, reference: str = "") -> WriteBehindTransaction:
        """A transaction to fill; committed at the end of its ``with`` block."""
        return WriteBehindTransaction(self, reference)

    def commit(
        self,
        operations: Sequence[Operation],
        reference: str = "",
        *,
        targets: Sequence[str] | None = None,
    ) -> int:
        """Commit operations; returns the transaction's number once its entry is durable (at once
        with ``wait_durable=False``). ``targets`` default to those that the operations are for.

        Raises `BusyError` at a limit, after ``busy_timeout``, with nothing written;
        `LogPoisonedError` where the log failed: the transaction may or may not be there when it
        is opened again.
        """
        one = self._submit(operations, reference, targets, self.settings.busy_timeout)
        if self.settings.wait_durable:
            self._sequencer.wait(one)
        else:
            self._sequencer.leave(one)
        self._metrics.committed()
        return one.entry.number

    async def commit_async(
        self,
        operations: Sequence[Operation],
        reference: str = "",
        *,
        targets: Sequence[str] | None = None,
    ) -> int:
        """`commit` for a task; the event loop is never blocked."""
        try:
            one = self._submit(operations, reference, targets, 0.0)
        except BusyError:
            timeout = self.settings.busy_timeout
            one = await asyncio.to_thread(self._submit, operations, reference, targets, timeout)
        await self._sequencer.wait_async(one)
        self._metrics.committed()
        return one.entry.number

    def _submit(
        self,
        operations: Sequence[Operation],
        reference: str,
        targets: Sequence[str] | None,
        timeout: float,
    ) -> Submitted:
        names = tuple(targets) if targets is not None else self._targets_of(operations)
        moment = int(time.time() * 1_000_000)
        entry = PersistEntry(0, names, tuple(operations), reference, moment)
        self._check(entry)
        size = size_of(entry)
        try:
            self._backlog.reserve(size, timeout)
        except BusyError:
            self._metrics.busy()
            raise
        try:
            with self._order:
                number, ticket = self._log.persisting(names, entry.operations, reference)
                entry = replace(entry, number=number)
                self._last_number = number
                self._backlog.add(entry, set(names), size)
                return self._sequencer.append(entry, ticket)
        except BaseException:
            self._backlog.release(size)
            raise

    def _targets_of(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        named = {one.target for one in operations}
        if None in named:
            return tuple(self._lanes)
        return tuple(name for name in self._lanes if name in named)

    def _check(self, entry: PersistEntry) -> None:
        if self._closed:
            raise LogClosedError("the service is closed", file=self.path)
        if self._holding:
            raise IncompleteLogError(
                "earlier transactions are held back", file=self.path, advice="Call replay() first"
            )
        named = {one.target for one in entry.operations} - {None}
        unknown = (named | set(entry.targets)) - self._lanes.keys()
        if unknown or not entry.targets:
            raise TransactionUsageError(
                "a transaction needs targets, and only known ones",
                expected=", ".join(self._lanes),
                found=", ".join(sorted(map(str, unknown))) or "none",
            )

    # -- what waits ----------------------------------------------------------------------------

    def pending(self, reference: str | None = None) -> list[PendingTransaction]:
        """Transactions that some target does not hold, by number; of one reference, or all."""
        return [
            self._status(one)
            for one in self._backlog.all()
            if reference is None or one.entry.reference == reference
        ]

    def find(self, number: int) -> PendingTransaction | None:
        """One transaction by its number; None if every target holds it."""
        one = self._backlog.get(number)
        return None if one is None else self._status(one)

    def _status(self, one: Pending) -> PendingTransaction:
        left = sorted(one.left)
        return pending_transaction(
            one.entry, {name: self._lanes[name].condition_of(one.entry.number) for name in left}
        )

    @property
    def backlog(self) -> BacklogSize:
        """How much waits, and for how long."""
        return self._backlog.size()

    @property
    def statistics(self) -> Statistics:
        """Totals since opening."""
        return self._metrics.statistics

    @property
    def disposals(self) -> DisposalCounters:
        """What the disposer did."""
        return DisposalCounters() if self._disposal is None else self._disposal.counters

    def wait(self, number: int, timeout: float | None = None) -> bool:
        """True once every target holds the transaction, False after ``timeout`` seconds."""
        return self._backlog.wait_gone(number, timeout)

    def drain(self, timeout: float | None = None) -> bool:
        """True once nothing waits, False after ``timeout`` seconds."""
        return self._backlog.wait_empty(timeout)

    # -- for operators -------------------------------------------------------------------------

    def discard(self, number: int) -> None:
        """Give a transaction up, durably. Raises `KeyError` if it is not pending. A call of a
        target that is running may still apply it."""
        self._log.discard(number).wait()
        for lane in self._lanes.values():
            lane.discard(number)
        self._backlog.forget(number)

    def retry(self, number: int) -> None:
        """Try a transaction that was set aside again. Raises `KeyError` if it was not."""
        retried = [lane.retry(number) for lane in self._lanes.values()]
        if True not in retried:
            raise KeyError(number)

    def replay(self, timeout: float | None = None) -> list[PendingTransaction]:
        """Apply what an earlier run left (``on_incomplete="hold"``). Returns what still waits:
        nothing, or what an operator has to look at, or what ``timeout`` seconds were too few for.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._start()
        self._drain(deadline)
        self._holding = False
        return self.pending()

    # -- life ----------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Refuse commits, apply what can be applied within ``timeout`` (default: the setting
        ``close_timeout``), stop. What still waits is there at the next opening."""
        if self._closed:
            return
        self._closed = True
        seconds = self.settings.close_timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        self._sequencer.close()
        if self._started:
            self._drain(deadline)
        for lane in self._lanes.values():
            lane.stop(deadline)
        try:
            self._close_log()
        finally:
            for lane in self._lanes.values():
                lane.target.close()

    def _close_log(self) -> None:
        try:
            self._log.sync().wait()
            if self._disposal is not None:
                self._disposal.close(self.settings.dispose_on_close_seconds)
        finally:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self) -> None:
        if not self._started:
            self._started = True
            for lane in self._lanes.values():
                lane.start()

    def _load(self, on_incomplete: str) -> int:
        """Take over what an earlier run left pending; returns how many."""
        left = [
            (self._rename(entry), self._names(targets)) for entry, targets in self._log.pending()
        ]
        if left and on_incomplete == "fail":
            raise incomplete(self.path, [entry.number for entry, _ in left])
        unknown = {name for _, targets in left for name in targets} - self._lanes.keys()
        if unknown:
            raise IncompleteLogError(
                f"pending transactions are for unknown targets: {', '.join(sorted(unknown))}",
                file=self.path,
                expected=", ".join(self._lanes),
                advice="Give these targets, map them with renamed=, or discard the transactions",
            )
        for entry, targets in left:
            self._backlog.load(entry, targets, size_of(entry))
            self._last_number = entry.number
        self._on_durable([entry for entry, _ in left])
        return len(left)

    def _rename(self, entry: PersistEntry) -> PersistEntry:
        operations = tuple(
            replace(one, target=self._renamed.get(one.target, one.target))
            if one.target is not None
            else one
            for one in entry.operations
        )
        targets = tuple(self._renamed.get(name, name) for name in entry.targets)
        return replace(entry, targets=targets, operations=operations)

    def _names(self, targets: Iterable[str]) -> set[str]:
        return {self._renamed.get(name, name) for name in targets}

    def _drain(self, deadline: float | None) -> None:
        """Wait while lanes get on: until nothing waits, or nothing moves, or the deadline."""
        while not self._backlog.wait_empty(0.02):
            late = deadline is not None and time.monotonic() > deadline
            if late or not any(lane.moves() for lane in self._lanes.values()):
                return

    # -- called from other threads ---------------------------------------------------------------

    def _on_durable(self, entries: Sequence[PersistEntry]) -> None:
        """Entries that the log has for good, in order: on to their lanes."""
        for name, lane in self._lanes.items():
            own = [_for_target(entry, name) for entry in entries if self._waits(entry, name)]
            if own:
                lane.add(own)

    def _waits(self, entry: PersistEntry, name: str) -> bool:
        one = self._backlog.get(entry.number)
        return one is not None and name in one.left

    def _held(self, target: str, numbers: Sequence[int]) -> None:
        """A target holds these transactions."""
        old = [name for name, new in self._renamed.items() if new == target]
        for number in numbers:
            try:
                self._log.persisted(number, (target, *old))
            except TallystickError as error:
                # the mark is missing: the transaction is applied again after the next start
                _log.error("%s: no mark for transaction %d: %s", self.path, number, error)
            self._backlog.held(number, target)
        if self._disposal is not None:
            self._disposal.prompt()
        self._settle(target, len(numbers))

    def _settle(self, target: str, count: int) -> None:
        """Now and then tell the target which numbers it may forget."""
        self._since_settled[target] += count
        if self._since_settled[target] < SETTLE_COUNT:
            return
        self._since_settled[target] = 0
        with self._order:
            lowest = self._backlog.lowest() or self._last_number + 1
        self._log.sync().wait()
        self._lanes[target].target.settled(lowest)

    def _disposed_files(self) -> int:
        return self.disposals.disposed


def _for_target(entry: PersistEntry, name: str) -> PersistEntry:
    own = tuple(one for one in entry.operations if one.target in (None, name))
    return entry if len(own) == len(entry.operations) else replace(entry, operations=own)


def incomplete(path: str, numbers: Sequence[int]) -> IncompleteLogError:
    """The error that names pending transactions."""
    shown = ", ".join(map(str, numbers[:NUMBERS_SHOWN_MAX]))
    more = len(numbers) - NUMBERS_SHOWN_MAX
    return IncompleteLogError(
        f"{len(numbers)} transactions have not reached all of their targets: {shown}"
        + (f" and {more} more" if more > 0 else ""),
        file=path,
        advice="Open with on_incomplete='replay', or look with on_incomplete='hold' first",
    )
