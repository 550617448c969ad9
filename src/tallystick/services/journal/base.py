"""What `Journal` and `AsyncJournal` share: checks of ids, the order of the log, tickets.

In: calls of both. Out: tickets of the engine, for the face to wait for. Submitting never waits for
a file; methods that read or write files say so.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from tallystick.arguments import DataClass, flag, integer, seconds
from tallystick.errors import (
    LogClosedError,
    LogWriteError,
    TallystickError,
    TransactionUsageError,
)
from tallystick.printable import logger
from tallystick.records import NumberedRecord
from tallystick.roles import (
    JournalEngine,
    SharedJournalEngine,
    Ticket,
    recovery_result,
)
from tallystick.roles.record_ids import (
    ADD,
    DELETE,
    UPDATE,
    IdChange,
    id_error,
)
from tallystick.services.journal.engine import open_engine
from tallystick.services.journal.ids import JournalIds
from tallystick.services.journal.transaction import BaseJournalTransaction, id_of
from tallystick.storage.files import FileSystem, absolute, file_system
from tallystick.storage.fork import Uncopied, forked_error, register_in_child
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.local import LOCAL
from tallystick.storage.opening import closes, opens_log
from tallystick.storage.scheduling import time
from tallystick.storage.signals import uninterrupted
from tallystick.systems.registry import NATIVE

if TYPE_CHECKING:
    from tallystick.services.journal.resource import JournalResource

_log = logger("tallystick.journal")
_TIME_MAX: Final = 1 << 40
"""Seconds: more than any record's time."""
_Transaction = TypeVar("_Transaction", bound=BaseJournalTransaction)


class BaseJournal(Uncopied):
    """A journal without waiting; `Journal` describes the arguments."""

    _is_for_tasks = False
    """Event loops begin its transactions."""

    @opens_log
    def __init__(
        self,
        path: str | PathLike[str],
        *,
        system: str = NATIVE,
        shared: bool = False,
        settings: Mapping[str, Any] | DataClass | None = None,
        key: Callable[[], bytes] | None = None,
        fs: FileSystem = LOCAL,
    ) -> None:
        self.path, shared = absolute(path), flag(shared, "shared")
        self.system = system
        self._fs = file_system(fs)
        self._engine: JournalEngine = open_engine(
            system, self.path, shared=shared, settings=settings, key=key, fs=self._fs
        )
        self._left: list[int] = []
        """The transactions that were left without an end."""
        # Keeps `_ids` in the order of the log.
        self._order = OwnedLock(partial(nested_call_error, self.path))
        # None: what other processes share only their leader knows.
        self._ids: JournalIds | None = None
        counts = {"live_records": 0, "in_doubt": 0}
        try:
            if shared:
                self._numbers = cast(SharedJournalEngine, self._engine).new_transaction
                if self._is_for_tasks:
                    self._reserve_transactions()
            else:
                self._ids = ids = JournalIds(self._engine)
                counts = {"live_records": ids.live_count, "in_doubt": len(ids.prepared)}
                self._numbers = itertools.count(self._engine.next_transaction()).__next__
        except BaseException:
            self._engine.close()
            raise
        self._closed = self._forked = False
        register_in_child(self)
        self.recovered = recovery_result(self.path, self._engine, **counts)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r}{self.recovered.suffix}>"

    def submit(self, body: bytes) -> Ticket:
        """Append a plain record; wait for the ticket, or await it."""
        return self._engine.append(body)

    def as_resource(self, name: str) -> JournalResource:
        """Return this journal as the resource ``name`` of a transaction manager."""
        # Imported here: a journal alone does without the transaction manager.
        from tallystick.services.journal.resource import JournalResource

        self._reserve_transactions()  # tasks may begin branches
        return JournalResource(name, self._begin, self._settle, self._engine, self.path, self._fs)

    @property
    def next_lsn(self) -> int:
        """LSN of the next record that will be written.

        Of a shared journal the process that leads says it: if that has ended, it is waited for the
        next one, or this process recovers the log, on an event loop, too.
        """
        return self._engine.next_lsn

    @property
    def counters(self) -> GroupCounters:
        """Groups, records, bytes, syncs and seconds so far."""
        return self._engine.counters

    # -- tickets ------------------------------------------------------------------------

    def _add(self, record_id: int, body: bytes, user_type: int) -> Ticket:
        record_id = id_of(record_id)
        with uninterrupted, self._order:
            self._check(ADD, record_id)
            ticket = self._engine.add(record_id, body, user_type)
            if self._ids is not None:
                self._ids.live.add(record_id)
        return ticket

    def _update(self, record_id: int, body: bytes, user_type: int) -> Ticket:
        record_id = id_of(record_id)
        with uninterrupted, self._order:
            self._check(UPDATE, record_id)
            return self._engine.update(record_id, body, user_type)

    def _delete(self, record_id: int) -> Ticket:
        record_id = id_of(record_id)
        with uninterrupted, self._order:
            self._check(DELETE, record_id)
            ticket = self._engine.delete(record_id)
            if self._ids is not None:
                self._ids.live.discard(record_id)
        return ticket

    def _check(self, change: IdChange, record_id: int) -> None:
        ids = self._ids
        if ids is None:
            return
        ids.learn_if_doubted()
        refusal = ids.refusal(change, record_id)
        if refusal is not None:
            self._require_open()
            raise id_error(refusal, record_id, self.path)

    def _reserve_transactions(self) -> None:
        """Have an event loop that begins a transaction not wait for the leader of a shared log."""
        if self._ids is None:
            with suppress(TallystickError):  # whoever begins one is told
                cast(SharedJournalEngine, self._engine).reserve_transactions()

    def _begin(self, face: type[_Transaction]) -> _Transaction:
        self._end_left()
        return face(self._engine, self._numbers(), self._ids, self._order, self._left)

    def _end_left(self) -> None:
        """Roll back the transactions that nothing refers to any more: they hold segments."""
        while self._left and not (self._forked or self._closed):
            with uninterrupted:
                if not self._order.try_acquire():  # it is done next time
                    return
                try:
                    if not self._left:  # another thread was first
                        return
                    number = self._left[-1]
                    self._engine.rollback(number)
                    self._left.remove(number)
                except LogWriteError:  # no room for it yet
                    return
                finally:
                    self._order.release()
            _log.warning(
                "a transaction was left without an end; it is rolled back",
                extra={"file": self.path, "transaction": number},
            )

    def _settle(self, number: int, *, commit: bool) -> Ticket:
        """End a transaction that is prepared."""
        with uninterrupted, self._order:
            if self._ids is not None:
                self._ids.learn_if_doubted()
                self._require_in_doubt(number)
            ticket = (self._engine.commit if commit else self._engine.rollback)(number)
            if self._ids is not None:
                self._ids.end(number, commit=commit)
        return ticket

    def _settle_found(self, number: int, *, commit: bool) -> Ticket:
        """End a transaction once it is known that it is prepared: a shared log is asked for it."""
        self._require_in_doubt(number)
        return self._settle(number, commit=commit)

    def _require_in_doubt(self, transaction: int) -> None:
        known = self._engine.in_doubt() if self._ids is None else self._ids.prepared
        if transaction not in known:
            raise TransactionUsageError(
                f"transaction {transaction} is not in doubt", file=self.path
            )

    # -- these read or write files --------------------------------------------------------

    def _replay(self, from_lsn: int, from_time: float | None) -> Iterator[NumberedRecord]:
        from_lsn = integer(from_lsn, "from_lsn", 0, sys.maxsize)
        since = None if from_time is None else seconds(from_time, "from_time")
        from_time_us = None if since is None else int(min(since, _TIME_MAX) * 1_000_000)
        return self._engine.records(from_lsn=from_lsn, from_time_us=from_time_us)

    def _follow(self, from_lsn: int, idle_s: float | None) -> Generator[NumberedRecord | None]:
        """Read records as they become durable; None when there are no more for now."""
        self._require_open()
        from_lsn = integer(from_lsn, "from_lsn", 0, sys.maxsize)
        idle_s = None if idle_s is None else seconds(idle_s, "idle_s")
        return self._following(from_lsn, idle_s)

    def _following(self, from_lsn: int, idle_s: float | None) -> Generator[NumberedRecord | None]:
        tail = self._engine.tail(from_lsn)
        try:
            last_record = time.monotonic()
            while not self._closed:
                for record in tail.read():
                    yield record
                    last_record = time.monotonic()
                if idle_s is not None and time.monotonic() - last_record >= idle_s:
                    return
                yield None
        except LogClosedError:
            if not self._closed:  # in a forked child
                raise
        finally:
            tail.close()

    def _checkpoint(self, lsn: int | None) -> int:
        self._end_left()
        return self._engine.reclaim(self._engine.next_lsn if lsn is None else lsn)

    def _reclaim(self) -> int:
        self._end_left()
        return self._engine.reclaim()

    def _compact(self, *, force: bool) -> int:
        self._end_left()
        return self._engine.compact(force=force)

    def _require_open(self) -> None:
        if self._forked:
            raise forked_error(self.path)
        if self._closed:
            raise LogClosedError("the log is closed", file=self.path)

    @closes
    def _close(self) -> None:
        if not self._forked:
            self._closed = True
            self._engine.close()

    def forked(self) -> None:
        """Leave the log to its parent in a forked child."""
        self._forked = True
        if self._order.locked():  # by a thread that is not here, and never gives it back
            self._order.release()


def pause(poll_s: float, idle_s: float | None) -> float:
    """Return the seconds between two looks at the files: no more than a reader may be idle."""
    asked = seconds(poll_s, "poll_s")
    return asked if idle_s is None else min(asked, seconds(idle_s, "idle_s"))
