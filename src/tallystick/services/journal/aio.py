"""The journal for asyncio: the same calls, awaited. No call blocks the event loop.

In: bodies. Out: LSNs. Tasks share groups with each other and with threads. Whatever reads or
writes files runs in the worker threads of `asyncio.to_thread`, iterators batch by batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Generic, Protocol, Self, TypeVar

from tallystick.arguments import DataClass, bodies_of
from tallystick.callables import checked
from tallystick.records import NumberedRecord
from tallystick.roles import JournalRecord, PreparedTransaction, Ticket
from tallystick.services.journal.base import BaseJournal, pause
from tallystick.services.journal.transaction import AsyncJournalTransaction, submitted
from tallystick.storage.files import FileSystem, absolute
from tallystick.storage.fork import Uncopied
from tallystick.storage.local import LOCAL
from tallystick.storage.scheduling import threading
from tallystick.systems.registry import NATIVE

BATCH_RECORDS = 256
"""Records that a worker thread reads at a time for an asynchronous iterator."""
BATCH_BYTES = 1 << 20
"""Bytes of bodies after which such a batch ends early."""


class AsyncJournal(BaseJournal):
    """A journal whose calls are awaited; an asynchronous context manager.

    Opening it by its constructor blocks; `open` opens it in a thread. Tasks share groups with each
    other and with threads: one write and one sync for all that wait.

    Args:
        path: the directory of the log; it is created if there is none.
        system: the log format, ``tally`` (the native log) or ``jboss`` (HornetQ, Artemis).
        shared: other processes may have the journal open, too, all of them with this option and the
            same settings; for the native log.
        settings: a mapping such as ``{"segment_size": 64 << 20}``, or an object of the format's
            class of settings, `tallystick.systems.tally.live.settings.Settings` or
            `tallystick.systems.jboss.live.settings.JournalSettings`, which say what there is.
        key: a function that returns the secret of an encrypted log, 16, 24 or 32 bytes; for the
            native log.
        fs: the file system. The kit (`tallystick.testing`) has some that crash and fail, so that a
            program on a journal can be tested with them.

    Raises:
        LogLockedError: the log is open elsewhere.
        CorruptLogError: acknowledged data is damaged.
        UnsupportedFormatError: the system has no journal, or none of this kind.
        TypeError: an argument or a setting is of a wrong type.
        ValueError: there is no such setting, or its value is not allowed.

    Attributes:
        path: the directory, absolute.
        system: the log format.
        recovered: what the opening found, as `tallystick explain` says it.
    """

    _is_for_tasks = True

    @classmethod
    async def open(
        cls,
        path: str | PathLike[str],
        *,
        system: str = NATIVE,
        shared: bool = False,
        settings: Mapping[str, Any] | DataClass | None = None,
        key: Callable[[], bytes] | None = None,
        fs: FileSystem = LOCAL,
    ) -> Self:
        """Open without blocking the event loop; the arguments are those of the class.

        A call that is cancelled leaves nothing open, at the latest once the opening has ended.
        """
        opened: list[Self] = []
        given_up = False

        def close_if_given_up() -> None:
            if given_up:
                with contextlib.suppress(IndexError):  # the other side has it
                    opened.pop()._close()

        def work() -> None:
            opened.append(
                cls(path, system=system, shared=shared, settings=settings, key=key, fs=fs)
            )
            close_if_given_up()

        try:
            await asyncio.to_thread(work)
        except asyncio.CancelledError:
            given_up = True
            close_if_given_up()
            raise
        return opened.pop()

    async def append(self, body: bytes) -> int:
        """Append a plain record; returns its LSN."""
        return await self._engine.append(body)

    async def append_many(self, bodies: Sequence[bytes]) -> Sequence[int]:
        """Append plain records in as few groups as possible; returns their LSNs."""
        return await asyncio.to_thread(self._engine.append_many, bodies_of(bodies))

    async def add(self, record_id: int, body: bytes, user_type: int = 0) -> int:
        """Add a record that is live until it is deleted; see `Journal.add`."""
        return await (await self._submitted(self._add, record_id, body, user_type))

    async def update(self, record_id: int, body: bytes, user_type: int = 0) -> int:
        """Give one more body to a live record; returns the LSN."""
        return await (await self._submitted(self._update, record_id, body, user_type))

    async def delete(self, record_id: int) -> int:
        """Delete a live record; returns the LSN."""
        return await (await self._submitted(self._delete, record_id))

    async def _submitted(self, submit: Callable[..., Ticket], *arguments: object) -> Ticket:
        return await submitted(submit, self._ids, self._order, *arguments)

    def transaction(self) -> AsyncJournalTransaction:
        """Begin a transaction: records that become live together."""
        return self._begin(AsyncJournalTransaction)

    async def prepared(self) -> Sequence[PreparedTransaction]:
        """Read the transactions in doubt: prepared and not ended."""
        return await asyncio.to_thread(self._engine.prepared)

    async def commit_prepared(self, transaction: int) -> int:
        """Commit a transaction that is in doubt since before the last restart."""
        return await (await asyncio.to_thread(self._settle_found, transaction, commit=True))

    async def rollback_prepared(self, transaction: int) -> int:
        """Roll back a transaction that is in doubt since before the last restart."""
        return await (await asyncio.to_thread(self._settle_found, transaction, commit=False))

    # -- reading ------------------------------------------------------------------------

    # Each of these returns one generator, and none around it: an event loop that ends closes all
    # that are left at the same time.

    def live_records(self) -> AsyncIterator[JournalRecord]:
        """Read adds and updates of live ids from the files; those of an id as they took effect."""
        return _in_threads(self._engine.live_records)

    def replay(
        self, from_lsn: int = 0, from_time: float | None = None
    ) -> AsyncIterator[NumberedRecord]:
        """Read every durable record from an LSN on, or from a time in seconds since 1970 on."""
        return _in_threads(lambda: self._replay(from_lsn, from_time))

    def follow(
        self, from_lsn: int = 0, *, poll_s: float = 0.01, idle_s: float | None = None
    ) -> AsyncIterator[NumberedRecord]:
        """Read records as they become durable; see `Journal.follow`."""
        poll_s = pause(poll_s, idle_s)
        self._require_open()
        return _in_threads(lambda: self._follow(from_lsn, idle_s), poll_s)

    # -- files --------------------------------------------------------------------------

    async def checkpoint(self, lsn: int | None = None) -> int:
        """Give up plain records below ``lsn`` and free segments; see `Journal.checkpoint`."""
        return await asyncio.to_thread(self._checkpoint, lsn)

    async def reclaim(self) -> int:
        """Free segments without live records, oldest first; returns how many."""
        return await asyncio.to_thread(self._reclaim)

    async def compact(self, *, force: bool = False) -> int:
        """Compact if it is due, or with ``force``; returns the number of segments freed."""
        return await asyncio.to_thread(lambda: self._compact(force=force))

    async def backup(
        self,
        target: str | PathLike[str],
        *,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Copy the journal as of now to a new folder; see `Journal.backup`.

        A cancelled call goes on copying in its thread.
        """
        told = checked(progress, "progress of a backup")
        await asyncio.to_thread(self._engine.backup, absolute(target), told)

    async def flush(self) -> None:
        """Wait until everything submitted so far is durable."""
        await asyncio.to_thread(self._engine.flush)

    async def close(self) -> None:
        """Make everything durable and release the log; see `Journal.close`."""
        if not self._forked:  # a child has no event loop that runs, nor worker threads
            await asyncio.to_thread(self._close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _HasBody(Protocol):
    @property
    def body(self) -> bytes | None: ...


_Item = TypeVar("_Item", bound=_HasBody | None)


async def _in_threads(
    start: Callable[[], Iterator[_Item | None]], poll_s: float = 0.0
) -> AsyncGenerator[_Item]:
    """Iterate in worker threads, one batch at a time, and sleep wherever there is a None.

    When the consumer stops or is cancelled, the iterator is closed, after the batch that a thread
    still reads. A second cancellation does not wait for that.
    """
    batches = _Batches(start)
    try:
        while batch := await asyncio.to_thread(batches.next):
            for item in batch:
                if item is None:
                    await asyncio.sleep(poll_s)
                else:
                    yield item
    finally:
        await asyncio.shield(asyncio.to_thread(batches.close))


class _Batches(Uncopied, Generic[_Item]):
    """An iterator cut into lists, for one worker thread at a time."""

    def __init__(self, start: Callable[[], Iterator[_Item]]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._iterator: Iterator[_Item] | None = None
        self._error: Exception | None = None
        self._closed = False

    def next(self) -> list[_Item]:
        """Read the next batch: up to `BATCH_RECORDS`, about `BATCH_BYTES`, or up to a None.

        Empty at the end. An error of the iterator is raised after the records before it.
        """
        batch: list[_Item] = []
        with self._lock:
            if self._error is not None:
                raise self._error
            if not self._closed:
                try:
                    self._fill(batch)
                except Exception as error:
                    if not batch:
                        raise
                    self._error = error
        return batch

    def _fill(self, batch: list[_Item]) -> None:
        if self._iterator is None:
            self._iterator = self._start()
        size = 0
        for item in self._iterator:
            batch.append(item)
            size += 0 if item is None else len(item.body or b"")
            if item is None or len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES:
                return

    def close(self) -> None:
        """Close the iterator and with it the files that it has open."""
        with self._lock:
            self._closed = True
            close = getattr(self._iterator, "close", None)
            if close is not None:
                close()
