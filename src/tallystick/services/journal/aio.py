"""The journal for asyncio: the same calls, awaited. No call blocks the event loop.

In: bodies. Out: LSNs. Tasks share groups with each other and with threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from tallystick.records import Record, Xid
from tallystick.services.journal.base import Face
from tallystick.services.journal.transaction import JournalTransaction, Phase


class AsyncTransaction:
    """`tallystick.services.journal.threads.Transaction` for tasks."""

    def __init__(self, core: JournalTransaction) -> None:
        self._core = core
        self.append = core.append
        self.add = core.add
        self.update = core.update
        self.delete = core.delete

    @property
    def number(self) -> int:
        """Its number in the log."""
        return self._core.number

    async def prepare(self, extra: bytes = b"", xid: Xid | None = None) -> int:
        """Promise durably that it can commit; returns the LSN."""
        return await self._core.end_prepare(extra, xid)

    async def commit(self) -> int:
        """Make its records live, durably; returns the LSN of the commit."""
        return await self._core.end_commit()

    async def rollback(self) -> int:
        """Give its records up."""
        return await self._core.end_rollback()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._core.phase is not Phase.ACTIVE:
            return
        if error is None:
            await self.commit()
        else:
            self._core.end_rollback()  # nobody has to wait for it: no commit is no commit


class AsyncJournal(Face):
    """A journal whose calls are awaited. Opening it blocks; `open` does so in a thread."""

    @classmethod
    async def open(cls, path: str, *, system: str = "tally", **options: object) -> Self:
        """Open without blocking the event loop. See `Face` for the arguments."""
        return await asyncio.to_thread(cls, path, system=system, **options)

    async def append(self, body: bytes) -> int:
        """A plain record; returns its LSN."""
        return await self._engine.append(body)

    async def append_many(self, bodies: Sequence[bytes]) -> Sequence[int]:
        """Plain records in as few groups as possible; returns their LSNs."""
        return await asyncio.to_thread(self._append_many, bodies)

    async def add(self, record_id: int, body: bytes, user_type: int = 0) -> int:
        """A record with an id of your own, which lives until it is deleted; returns the LSN."""
        return await self._add(record_id, body, user_type)

    async def update(self, record_id: int, body: bytes, user_type: int = 0) -> int:
        """One more body for a live record."""
        return await self._update(record_id, body, user_type)

    async def delete(self, record_id: int) -> int:
        """End the life of a record."""
        return await self._delete(record_id)

    def transaction(self) -> AsyncTransaction:
        """Records that become live together; an asynchronous context manager."""
        return AsyncTransaction(self._begin())

    async def commit_prepared(self, transaction: int) -> int:
        """Commit a transaction that is in doubt since before the last restart."""
        return await self._settle(transaction, commit=True)

    async def rollback_prepared(self, transaction: int) -> int:
        """Roll back a transaction that is in doubt since before the last restart."""
        return await self._settle(transaction, commit=False)

    async def follow(self, from_lsn: int = 0, *, poll_s: float = 0.01) -> AsyncIterator[Record]:
        """Records as they become durable, until the journal is closed."""
        tail = self._engine.tail(from_lsn)
        try:
            while not self._closed:
                for record in tail.read():
                    yield record
                await asyncio.sleep(poll_s)
        finally:
            tail.close()

    async def checkpoint(self, lsn: int | None = None) -> int:
        """Give up plain records below ``lsn`` and free segments; returns how many."""
        return await asyncio.to_thread(self._checkpoint, lsn)

    async def reclaim(self) -> int:
        """Free segments without live records, oldest first; returns how many."""
        return await asyncio.to_thread(self._engine.reclaim)

    async def compact(self, *, force: bool = False) -> int:
        """Compact if it is due, or with ``force``; returns the number of segments freed."""
        return await asyncio.to_thread(lambda: self._engine.compact(force=force))

    async def flush(self) -> None:
        """Everything submitted so far is durable when this returns."""
        await asyncio.to_thread(self._engine.flush)

    async def close(self) -> None:
        """Make everything durable and give the log back; a second call does nothing."""
        self._closed = True
        await asyncio.to_thread(self._engine.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
