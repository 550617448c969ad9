"""The journal for threads: every call returns when its effect is durable.

In: bodies. Out: LSNs. Calls of many threads share groups, one sync for all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from os import PathLike

from tallystick.callables import checked
from tallystick.records import NumberedRecord
from tallystick.roles import JournalRecord, PreparedTransaction, Ticket
from tallystick.services.journal.base import BaseJournal, pause
from tallystick.services.journal.transaction import JournalTransaction
from tallystick.storage.files import absolute
from tallystick.storage.opening import Closing
from tallystick.storage.scheduling import time
from tallystick.storage.signals import starts_unchecked, uninterrupted


class Journal(BaseJournal, Closing):
    """A journal whose calls block until what they write is durable; a context manager.

    Threads share groups: one write and one sync for all that wait. `AsyncJournal` is for tasks.

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

    def append(self, body: bytes) -> int:
        """Append a plain record; returns its LSN."""
        return self._engine.append_durably(body)

    def append_many(self, bodies: Sequence[bytes]) -> Sequence[int]:
        """Append plain records in as few groups as possible; returns their LSNs."""
        return self._engine.append_many(bodies)

    def add(self, record_id: int, body: bytes, user_type: int = 0) -> int:
        """Add a record that is live until it is deleted.

        Args:
            record_id: an id of your own, 64 bits.
            body: its content.
            user_type: a number of your own, -128 to 127.

        Returns:
            The LSN of the record.

        Raises:
            TransactionUsageError: a record of this id is live.
        """
        return self._durably(self._add, record_id, body, user_type)

    def update(self, record_id: int, body: bytes, user_type: int = 0) -> int:
        """Give one more body to a live record; returns the LSN."""
        return self._durably(self._update, record_id, body, user_type)

    def delete(self, record_id: int) -> int:
        """Delete a live record; returns the LSN."""
        return self._durably(self._delete, record_id)

    def _durably(self, submit: Callable[..., Ticket], *arguments: object) -> int:
        """Wait for what is submitted, in one block: to enter another one costs a microsecond."""
        with uninterrupted:
            return uninterrupted.interruptible(submit(*arguments).wait)

    def transaction(self) -> JournalTransaction:
        """Begin a transaction: records that become live together."""
        return self._begin(JournalTransaction)

    def prepared(self) -> Sequence[PreparedTransaction]:
        """Read the transactions in doubt: prepared and not ended."""
        return self._engine.prepared()

    def commit_prepared(self, transaction: int) -> int:
        """Commit a transaction that is in doubt since before the last restart."""
        return self._settle_found(transaction, commit=True).wait()

    def rollback_prepared(self, transaction: int) -> int:
        """Roll back a transaction that is in doubt since before the last restart."""
        return self._settle_found(transaction, commit=False).wait()

    # -- reading ------------------------------------------------------------------------

    def live_records(self) -> Iterator[JournalRecord]:
        """Read adds and updates of live ids from the files; those of an id as they took effect."""
        return self._engine.live_records()

    def replay(self, from_lsn: int = 0, from_time: float | None = None) -> Iterator[NumberedRecord]:
        """Read every durable record from an LSN on, or from a time in seconds since 1970 on.

        Records of transactions are among them, also of those that were rolled back.
        A log without LSNs (jboss) is read whole; its records are numbered from 1 on.
        """
        return self._replay(from_lsn, from_time)

    def follow(
        self, from_lsn: int = 0, *, poll_s: float = 0.01, idle_s: float | None = None
    ) -> Iterator[NumberedRecord]:
        """Read records as they become durable, until the journal is closed.

        What is half read when this program closes the journal ends there, without an error.

        Args:
            from_lsn: LSN of the first record.
            poll_s: seconds between two looks at the files when there is nothing new.
            idle_s: end after so many seconds without a record; None for never.

        Raises:
            LogClosedError: the journal was closed before, or belongs to the parent of this process.
        """
        return _polled(self._follow(from_lsn, idle_s), pause(poll_s, idle_s))

    # -- files --------------------------------------------------------------------------

    def checkpoint(self, lsn: int | None = None) -> int:
        """Give up plain records below ``lsn`` (all, if None) and free segments.

        Returns:
            The number of segments that were freed, as no record in them is needed any more.
        """
        return self._checkpoint(lsn)

    def reclaim(self) -> int:
        """Free segments without live records, oldest first; returns how many."""
        return self._reclaim()

    def compact(self, *, force: bool = False) -> int:
        """Write the live records of old segments again, if they are few, and free the segments.

        Args:
            force: do it even if it is not due.

        Returns:
            The number of segments freed.
        """
        return self._compact(force=force)

    def backup(
        self,
        target: str | PathLike[str],
        *,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Copy the journal as of now to a new folder, while it goes on being written.

        The copy is durable and read back when this returns. Until then opening it is refused.
        Segments that are given up meanwhile are freed by the next checkpoint after it.

        Args:
            target: a folder that is absent or empty.
            progress: called with the bytes copied so far and the bytes in all, in the thread that
                copies; what it raises ends the backup.

        Raises:
            LogWriteError: the target is not empty, or cannot be written; no harm to the journal.
            LogUnreadableError: a file of the journal cannot be read.
            CorruptLogError: the copy, read back, does not hold the whole journal.
            UnsupportedFormatError: the system has no backup of an open log.
            TransactionUsageError: ``progress`` has to be awaited.
        """
        self._engine.backup(absolute(target), checked(progress, "progress of a backup"))

    def flush(self) -> None:
        """Block until everything submitted so far is durable."""
        self._engine.flush()

    @starts_unchecked
    def close(self) -> None:
        """Make everything durable and release the log.

        A second call does nothing, nor does one in a forked child.
        """
        self._close()


def _polled(following: Generator[NumberedRecord | None], poll_s: float) -> Iterator[NumberedRecord]:
    """Yield records, and sleep wherever there are no more for now."""
    with contextlib.closing(following) as records:
        for record in records:
            if record is None:
                time.sleep(poll_s)
            else:
                yield record
