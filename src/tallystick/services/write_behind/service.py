"""Write-behind: commits are durable at once, and reach their targets a little later.

In: transactions of operations on keys. Out: each in every target, in the order of commits per
key, at least once, and exactly once where the target keeps the numbers it has applied.

    with WriteBehind("spool", targets={"orders": engine}) as behind:
        with behind.begin(reference="order-7") as tx:
            tx.update("orders", {"id": 7}, {"state": "paid"})

A commit takes the way: room in the backlog, *persisting* in the log (`intake`), durable, to the
lanes of its targets (`sequencer`, `lane`), applied, *persisted* per target (`marks`). Files of
the log that hold nothing pending any more go to the disposer, oldest first.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tallystick.disposal.disposers import AnyDisposer, disposer_of
from tallystick.disposal.worker import Disposal
from tallystick.errors import BusyError, IncompleteLogError, LogClosedError
from tallystick.roles import Operation, PersistEntry, PersistLog
from tallystick.services.write_behind.admission import Intake
from tallystick.services.write_behind.backlog import Backlog, size_of
from tallystick.services.write_behind.home import identify, open_log
from tallystick.services.write_behind.inspection import Watching
from tallystick.services.write_behind.metrics import WriteBehindMetrics
from tallystick.services.write_behind.sequencer import Sequencer
from tallystick.services.write_behind.settings import WriteBehindSettings
from tallystick.services.write_behind.status import PendingTransaction
from tallystick.services.write_behind.targets.persisted_marks import Marks
from tallystick.services.write_behind.targets.workers import Lanes
from tallystick.services.write_behind.transaction import WriteBehindTransaction
from tallystick.services.write_behind.unfinished import incomplete, leftovers, unknown_targets
from tallystick.storage.files import FileSystem
from tallystick.storage.fork import register_in_child
from tallystick.storage.local import LOCAL


class WriteBehind(Watching):
    """An open write-behind service; a context manager. See the module.

    ``targets`` are SQLAlchemy engines, functions or coroutine functions of an entry, or
    `Target` objects, by the names that the log knows them by; ``renamed`` maps names of old
    entries to these. ``system`` is ``tally`` or ``cloudtran``, or ``log`` an open log, which the
    service closes, also where it cannot open.
    ``disposer``: see `tallystick.disposal.disposers.disposer_of`.

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
        # what can be wrong with the arguments shows before anything is opened
        chosen = None if disposer is None else disposer_of(disposer, fs)
        self.path = os.fspath(path)
        self.settings = settings or WriteBehindSettings()
        self._backlog = Backlog(self.settings)
        self._metrics = WriteBehindMetrics(self.path, self._backlog.size, self._disposed_files)
        self._lanes = Lanes(
            targets, self.settings, self._backlog, self._metrics, self._held, self._broken,
            strict=strict,
        )  # fmt: skip
        self._disposal: Disposal | None = None
        self._closed = self._foreign = False
        self._log = open_log(self.path, system, fs) if log is None else log
        try:
            fs.mkdir(self.path)
            last = self._load(on_incomplete, renamed or {})
            identity = identify(self.path, fs, system if log is None else None, self._log)
            self._lanes.open(identity, self._log.last_number)
        except BaseException:
            self._log.close()
            raise
        self._holding = on_incomplete == "hold" and last > 0
        self._marks = Marks(self.path, self._log, self._backlog, renamed or {})
        self._sequencer = Sequencer(
            self._on_durable,
            self._backlog.forget,
            self._broken,
            alone=not self.settings.wait_durable,
        )
        self._intake = Intake(
            self._lanes, self._log, self._backlog, self._sequencer, self._metrics, last
        )
        if chosen is not None:
            self._disposal = Disposal(self._log, chosen, fs=fs)
        register_in_child(self)
        if not self._holding:
            self._lanes.start()

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
        is opened again. One that is interrupted while it waits is in the log all the same.
        """
        self._require_open()
        settings = self.settings
        number, ticket = self._intake.submit(operations, reference, targets, settings.busy_timeout)
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
        """`commit` for a task; the event loop is never blocked. One that is cancelled while it
        waits for the disk is in the log all the same; while it waits for room, it may be."""
        self._require_open()
        submit, timeout = self._intake.submit, self.settings.busy_timeout
        try:
            number, ticket = submit(operations, reference, targets, 0.0)
        except BusyError:
            number, ticket = await asyncio.to_thread(
                submit, operations, reference, targets, timeout
            )
        if self.settings.wait_durable:
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

    # -- for operators -------------------------------------------------------------------------

    def discard(self, number: int) -> None:
        """Give a transaction up, durably. Raises `KeyError` if it is not pending. A call of a
        target that is running may still apply it."""
        self._require_own()
        self._log.discard(number).wait()
        self._lanes.discard(number)

    def retry(self, number: int) -> None:
        """Try a transaction that was set aside again. Raises `KeyError` if it was not."""
        self._require_own()
        retried = [lane.retry(number) for lane in self._lanes.values()]
        if True not in retried:
            raise KeyError(number)

    def replay(self, timeout: float | None = None) -> list[PendingTransaction]:
        """Apply what an earlier run left (``on_incomplete="hold"``). Returns what still waits:
        nothing, or what an operator has to look at. A target that cannot be reached is tried for
        ``timeout`` seconds, without one only once. Raises `IncompleteLogError`, with nothing
        applied, if some of it is for targets that are not there.
        """
        self._require_own()
        strangers = {name for one in self._backlog.all() for name in one.left} - self._lanes.keys()
        if strangers:
            raise unknown_targets(self.path, strangers, self._lanes)
        deadline = None if timeout is None else time.monotonic() + timeout
        self._lanes.start()
        self._drain(deadline, patient=timeout is not None)
        self._holding = False
        return self.pending()

    # -- life ----------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Refuse commits, apply what can be applied within ``timeout`` (default: the setting
        ``close_timeout``), stop. What still waits is there at the next opening. A second call
        does nothing, nor does one in a forked child."""
        if self._closed or self._foreign:
            return
        self._closed = True
        seconds = self.settings.close_timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        self._backlog.refuse(LogClosedError("the service is closed", file=self.path))
        self._sequencer.close()
        self._drain(deadline, patient=False)
        self._lanes.stop(deadline)
        try:
            self._close_log()
        finally:
            self._lanes.close()

    def _close_log(self) -> None:
        try:
            self._log.sync().wait()
        finally:
            try:
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

    def _load(self, on_incomplete: str, renamed: Mapping[str, str]) -> int:
        """Take over what an earlier run left pending; returns its greatest number, or 0."""
        left = list(leftovers(self._log, renamed))
        if left and on_incomplete == "fail":
            raise incomplete(self.path, [entry.number for entry, _ in left])
        strangers = {name for _, targets in left for name in targets} - self._lanes.keys()
        if strangers and on_incomplete != "hold":
            raise unknown_targets(self.path, strangers, self._lanes)
        for entry, targets in left:
            self._backlog.load(entry, targets, size_of(entry.reference, entry.operations))
        self._lanes.hand_over([entry for entry, _ in left])
        return left[-1][0].number if left else 0

    def _drain(self, deadline: float | None, *, patient: bool) -> None:
        """Wait while lanes get on: until nothing waits, or nothing moves, or the deadline."""
        while not self._backlog.wait_empty(0.02):
            late = deadline is not None and time.monotonic() > deadline
            if late or not self._lanes.moves(patient=patient):
                return

    # -- called from other threads ---------------------------------------------------------------

    def _on_durable(self, entries: Sequence[PersistEntry]) -> None:
        """Entries that the log has for good, in order: on to their lanes."""
        self._metrics.committed(len(entries))
        self._lanes.hand_over(entries)

    def _held(self, target: str, numbers: Sequence[int]) -> None:
        """A target holds these transactions."""
        self._marks.held(target, numbers)
        if self._disposal is not None:
            self._disposal.prompt()
        settled = self._lanes[target].target.settled
        self._marks.settle(target, len(numbers), settled, self._intake.last_number)

    def _broken(self, error: BaseException) -> None:
        """A thread of the service cannot go on: nor can the service."""
        self._backlog.refuse(
            LogClosedError(
                f"the service has stopped: {error!r}",
                file=self.path,
                advice="Close it and open it again: what is in the log is not lost",
            )
        )
