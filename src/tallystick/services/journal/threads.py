"""The journal for threads: every call returns when its effect is durable.

In: bodies. Out: LSNs. Calls of many threads share groups, one sync for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tallystick.errors import LogClosedError
from tallystick.records import Record, Xid
from tallystick.services.journal.base import Face
from tallystick.services.journal.transaction import JournalTransaction, Phase

if TYPE_CHECKING:
    from tallystick.services.journal.resource import JournalResource


class Transaction:
    """A transaction as a context manager: commits at the end, rolls back on an exception.

    Once prepared, leaving the block does nothing: the transaction is in doubt until `commit` or
    `rollback`, here or after a restart by `Journal.commit_prepared`.
    """

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

    def prepare(self, extra: bytes = b"", xid: Xid | None = None) -> int:
        """Promise durably that it can commit; returns the LSN."""
        return self._core.end_prepare(extra, xid).wait()

    def commit(self) -> int:
        """Make its records live, durably; returns the LSN of the commit."""
        return self._core.end_commit().wait()

    def rollback(self) -> int:
        """Give its records up."""
        return self._core.end_rollback().wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._core.phase is not Phase.ACTIVE:
            return
        if error is None:
            self.commit()
        else:
            self._core.end_rollback()  # nobody has to wait for it: no commit is no commit


class Journal(Face):
    """A journal whose calls block until durable. See `Face` for the arguments."""

    def append(self, body: bytes) -> int:
        """A plain record; returns its LSN."""
        return self._engine.append_durably(body)

    def append_many(self, bodies: Sequence[bytes]) -> Sequence[int]:
        """Plain records in as few groups as possible; returns their LSNs."""
        return self._append_many(bodies)

    def add(self, record_id: int, body: bytes, user_type: int = 0) -> int:
        """A record with an id of your own, which lives until it is deleted; returns the LSN."""
        return self._add(record_id, body, user_type).wait()

    def update(self, record_id: int, body: bytes, user_type: int = 0) -> int:
        """One more body for a live record."""
        return self._update(record_id, body, user_type).wait()

    def delete(self, record_id: int) -> int:
        """End the life of a record."""
        return self._delete(record_id).wait()

    def transaction(self) -> Transaction:
        """Records that become live together; a context manager."""
        return Transaction(self._begin())

    def commit_prepared(self, transaction: int) -> int:
        """Commit a transaction that is in doubt since before the last restart."""
        return self._settle(transaction, commit=True).wait()

    def rollback_prepared(self, transaction: int) -> int:
        """Roll back a transaction that is in doubt since before the last restart."""
        return self._settle(transaction, commit=False).wait()

    def follow(
        self, from_lsn: int = 0, *, poll_s: float = 0.01, idle_s: float | None = None
    ) -> Iterator[Record]:
        """Records as they become durable, for ever, or until none came for ``idle_s`` seconds.

        Ends when the journal is closed.
        """
        tail = self._engine.tail(from_lsn)
        try:
            quiet_since = time.monotonic()
            while not self._closed:
                for record in tail.read():
                    yield record
                    quiet_since = time.monotonic()
                if idle_s is not None and time.monotonic() - quiet_since >= idle_s:
                    return
                time.sleep(poll_s)
        except LogClosedError:
            return
        finally:
            tail.close()

    def checkpoint(self, lsn: int | None = None) -> int:
        """Give up plain records below ``lsn`` (all, if None) and free segments that nothing
        needs any more; returns how many."""
        return self._checkpoint(lsn)

    def reclaim(self) -> int:
        """Free segments without live records, oldest first; returns how many."""
        return self._engine.reclaim()

    def compact(self, *, force: bool = False) -> int:
        """Write live records of old segments again, if they are few (or ``force``), and free the
        segments; returns how many."""
        return self._engine.compact(force=force)

    def as_resource(self, name: str) -> JournalResource:
        """This journal as a resource of a transaction manager."""
        from tallystick.services.journal.resource import JournalResource

        return JournalResource(name, self)

    def flush(self) -> None:
        """Everything submitted so far is durable when this returns."""
        self._engine.flush()

    def close(self) -> None:
        """Make everything durable and give the log back; a second call does nothing."""
        self._closed = True
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
