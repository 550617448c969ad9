"""The live logs of all systems with one interface, so that the same trials run over each.

In: numbers to keep, numbers to drop. Out: which numbers a log holds. `Live.put` returns when the
number is durable; `Live.drop` promises nothing but that it does not come back once it is gone
durably. Files are small, so that they roll, switch and are used again all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tallystick.roles.decision_log import DecisionOutcome
from tallystick.storage.files import FileSystem
from tallystick.systems.bitronix.format.layout import ACTIVE, COMMITTED, COMMITTING
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.cloudtran.format.entries import Operation, OperationKind
from tallystick.systems.cloudtran.live.log import BlockLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import (
    compressed_int,
    compressed_long,
    format_id,
)
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.live.log import LogToFile
from tallystick.systems.h2.live.role import H2UndoRedoLog
from tallystick.systems.jboss.live.role import JBossRecordJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.tally.format.layout import SEGMENT_SIZE_MIN
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.decision_log import TallyDecisionLog
from tallystick.systems.tally.live.settings import Settings
from tests.systems.bitronix.logs import gtrid, number_of

BODY = 90
"""Bytes of what is kept for a number, about."""


class Live(Protocol):
    """An open log."""

    def put(self, number: int) -> None: ...

    def drop(self, number: int) -> None: ...

    def numbers(self) -> set[int]: ...

    def close(self) -> None: ...


class Bitronix:
    """Decisions that are open."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.log = DiskJournal(folder, fs=fs, max_log_size=6_000)

    def put(self, number: int) -> None:
        self.log.log(ACTIVE, gtrid(number), ())
        self.log.log_forced(COMMITTING, gtrid(number), ("jdbc/a", "jms/b")).wait()

    def drop(self, number: int) -> None:
        self.log.log(COMMITTED, gtrid(number), ("jdbc/a", "jms/b"))

    def numbers(self) -> set[int]:
        return {number_of(one) for one in self.log.collect_dangling_records()}

    def close(self) -> None:
        self.log.close()


class JBoss:
    """Live records; every third number is the record of a transaction."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.log = JBossRecordJournal(folder, JournalSettings(file_size=1024), fs=fs)

    def put(self, number: int) -> None:
        body = bytes([number & 0xFF]) * BODY
        if number % 3:
            self.log.add(number, body).wait()
        else:
            self.log.add_in(number, number, body)
            self.log.commit(number).wait()

    def drop(self, number: int) -> None:
        self.log.delete(number)

    def numbers(self) -> set[int]:
        return {one.record_id for one in self.log.live_records()}

    def close(self) -> None:
        self.log.close()


class H2:
    """Committed rows of a table."""

    TABLE = 20

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.log = H2UndoRedoLog(folder, page_size=512, batch=8, fs=fs)

    def put(self, number: int) -> None:
        self.log.log_row(number % 5, self.TABLE, number, bytes([number & 0xFF]) * BODY)
        self.log.commit(number % 5).wait()

    def drop(self, number: int) -> None:
        self.log.log_row(7, self.TABLE, number, None)
        self.log.commit(7)

    def numbers(self) -> set[int]:
        rows = _Rows()
        self.log.recover(rows)
        return rows.found

    def close(self) -> None:
        self.log.close()


class _Rows:
    """A `RecoveryHandler` that keeps the keys of rows."""

    def __init__(self) -> None:
        self.found: set[int] = set()

    def undo_page(self, page: int, image: bytes | None) -> None:
        """Nothing is logged that would call it."""

    def redo_add(self, table: int, key: int, row: bytes) -> None:
        assert (table, len(row)) == (H2.TABLE, BODY)
        self.found.add(key)

    def redo_remove(self, table: int, key: int) -> None:  # noqa: ARG002
        self.found.discard(key)

    def redo_truncate(self, table: int) -> None:
        """Nothing is logged that would call it."""


class CloudTran:
    """Entries that are pending, by their reference."""

    SETTINGS = LogSettings(
        disk_block_size=512, file_size_mb=1, on_incomplete="replay", persisted_flush_millis=2
    )

    DISPOSER: str | None = None

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.log = BlockLog(folder, self.SETTINGS, fs=fs, disposer=self.DISPOSER)
        self._given = {int(one.reference): one.number for one, _ in self.log.pending()}

    def put(self, number: int) -> None:
        operation = Operation(None, OperationKind.INSERT, "orders", b"key", bytes(BODY))
        given, ticket = self.log.persisting(["a", "b"], [operation], str(number))
        self._given[number] = given
        ticket.wait()

    def drop(self, number: int) -> None:
        self.log.persisted(self._given[number], ["a"])
        self.log.persisted(self._given[number], ["b"])

    def numbers(self) -> set[int]:
        return {int(one.reference) for one, _ in self.log.pending()}

    def close(self) -> None:
        self.log.close()


class Derby:
    """Committed operations, of which those of a negative number take one away."""

    ARCHIVE = True

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.log = LogToFile(
            folder, fs=fs, buffer_size=512, switch_interval=4096, archive=self.ARCHIVE
        )
        page = b"".join(map(compressed_long, (0, 1168, 1, 0)))
        self.insert = format_id(operations.INSERT) + page + compressed_int(6) + b"\0\0\0\1"

    def put(self, number: int) -> None:
        self._commit(number, sync=True)

    def drop(self, number: int) -> None:
        self._commit(-number, sync=False)

    def _commit(self, number: int, *, sync: bool) -> None:
        transaction = self.log.begin()
        self.log.log(transaction, self.insert, str(number).encode().ljust(BODY))
        self.log.commit(transaction, sync=sync)

    def numbers(self) -> set[int]:
        pending: dict[int | None, int] = {}
        found: set[int] = set()
        for _, body in self.log.replay():
            if body.operation == operations.INSERT:
                pending[body.transaction] = int(body.optional or b"0")
            elif body.group & Group.COMMIT and body.transaction in pending:
                number = pending.pop(body.transaction)
                found.add(number) if number > 0 else found.discard(-number)
        return found

    def close(self) -> None:
        self.log.close()


class Tally:
    """Open decisions of the native log."""

    SETTINGS = Settings(segment_size=SEGMENT_SIZE_MIN)

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.log = TallyDecisionLog(TallyLog(folder, settings=self.SETTINGS, fs=fs))

    def put(self, number: int) -> None:
        self.log.decide(gtrid(number), ("jdbc/a", "jms/b")).wait()

    def drop(self, number: int) -> None:
        self.log.finish(gtrid(number), ("jdbc/a", "jms/b"), DecisionOutcome.COMMITTED)

    def numbers(self) -> set[int]:
        return {number_of(one) for one in self.log.open_decisions()}

    def close(self) -> None:
        self.log.close()


LIVE: dict[str, Callable[[FileSystem, str], Live]] = {
    "bitronix": Bitronix,
    "jboss": JBoss,
    "h2": H2,
    "cloudtran": CloudTran,
    "derby": Derby,
    "tally": Tally,
}
