"""Mutants opened for writing: what opens keeps what it is given, or refuses by a documented error.

In: a mutant in a file system in memory. Out: how far it came. A log that opens takes one item,
acknowledges it, closes, opens again and must hold it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tallystick.roles.persist_log import Operation as RoleOperation
from tallystick.roles.persist_log import OperationCode
from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.storage.files import FileSystem
from tallystick.systems.bitronix.format.layout import COMMITTING
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
from tallystick.systems.derby.live.log import LogToFile
from tallystick.systems.h2.live.role import H2UndoRedoLog
from tallystick.systems.jboss.live.role import JBossRecordJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.decision_log import TallyDecisionLog
from tallystick.systems.tally.live.roles.persist_log import TallyPersistLog
from tallystick.systems.tally.live.roles.record_journal import TallyRecordJournal
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tallystick.systems.tally.live.settings import Settings
from tests.services.page_store.test_crash_states import small_store

FOLDER = "/log"
MARK = b"written by the fuzzer"
GTRID = b"fuzzer" + bytes(8) + b"\x7f\x00\x11\x22"
NUMBER = 0x1234_5678
SETTINGS = Settings(segment_size=16 << 10, preallocate=False, idle_mark_s=None)


class Opener(Protocol):
    """A log that is open for writing."""

    def __init__(self, fs: FileSystem) -> None: ...

    def write(self) -> None:
        """Write the mark; return when it is durable."""
        ...

    def holds(self) -> bool:
        """Return whether the mark is there."""
        ...

    def close(self) -> None: ...


class _Log:
    log: Any

    def close(self) -> None:
        self.log.close()


class Bitronix(_Log):
    def __init__(self, fs: FileSystem) -> None:
        self.log = DiskJournal(FOLDER, fs=fs, max_log_size=6_000)

    def write(self) -> None:
        self.log.log_forced(COMMITTING, GTRID, ("jdbc/a",)).wait()

    def holds(self) -> bool:
        return GTRID in self.log.collect_dangling_records()


class JBoss(_Log):
    SETTINGS = JournalSettings(file_size=1024)

    def __init__(self, fs: FileSystem) -> None:
        self.log = JBossRecordJournal(FOLDER, self.SETTINGS, fs=fs)

    def write(self) -> None:
        self.log.add(NUMBER, MARK).wait()

    def holds(self) -> bool:
        found = [one.record_id for one in self.log.live_records()]
        self.log.prepared()
        return NUMBER in found


class _Rows:
    """A `RecoveryHandler` that keeps the keys of rows."""

    def __init__(self) -> None:
        self.keys: set[int] = set()

    def undo_page(self, page: int, image: bytes | None) -> None:
        """Images are of no interest."""

    def redo_add(self, table: int, key: int, row: bytes) -> None:  # noqa: ARG002
        self.keys.add(key)

    def redo_remove(self, table: int, key: int) -> None:  # noqa: ARG002
        self.keys.discard(key)

    def redo_truncate(self, table: int) -> None:
        """Rows of other tables are of no interest."""


class H2(_Log):
    def __init__(self, fs: FileSystem) -> None:
        self.log = H2UndoRedoLog(FOLDER, page_size=512, batch=8, fs=fs)

    def write(self) -> None:
        self.log.log_row(91, 77, NUMBER, MARK)
        self.log.commit(91).wait()

    def holds(self) -> bool:
        rows = _Rows()
        self.log.recover(rows)
        return NUMBER in rows.keys


class Store(_Log):
    def __init__(self, fs: FileSystem) -> None:
        self.log = self.store(fs)
        for one in self.log.in_doubt():
            self.log.settle(one.name, commit=True)

    def store(self, fs: FileSystem) -> PageStore:
        return small_store(FOLDER, "tally", fs=fs)

    def write(self) -> None:
        if "fuzzer" not in self.log.tables():
            self.log.create_table("fuzzer")
        with self.log.begin() as transaction:
            transaction.table("fuzzer")[NUMBER] = MARK

    def holds(self) -> bool:
        with self.log.begin() as transaction:
            for name in self.log.tables():
                list(transaction.table(name).range())
            return bool(transaction.table("fuzzer")[NUMBER] == MARK)


class H2Store(Store):
    def store(self, fs: FileSystem) -> PageStore:
        return PageStore(FOLDER, system="h2", fs=fs)


class CloudTran(_Log):
    SETTINGS = LogSettings(
        disk_block_size=512, file_size_mb=1, on_incomplete="replay", persisted_flush_millis=2
    )

    def __init__(self, fs: FileSystem) -> None:
        self.log = BlockLog(FOLDER, self.SETTINGS, fs=fs, disposer=None)

    def write(self) -> None:
        operation = Operation(None, OperationKind.INSERT, "orders", b"key", MARK)
        self.log.persisting(["fuzzer"], [operation], "fuzzer")[1].wait()

    def holds(self) -> bool:
        return any(one.reference == "fuzzer" for one, _ in self.log.pending())


class Derby(_Log):
    def __init__(self, fs: FileSystem) -> None:
        self.log = LogToFile(FOLDER, fs=fs, buffer_size=512, switch_interval=4096, archive=True)
        page = b"".join(map(compressed_long, (0, 1168, 1, 0)))
        self._insert = format_id(operations.INSERT) + page + compressed_int(6) + b"\0\0\0\1"

    def write(self) -> None:
        transaction = self.log.begin()
        self.log.log(transaction, self._insert, MARK)
        self.log.commit(transaction)

    def holds(self) -> bool:
        return any(body.optional == MARK for _, body in self.log.replay())


class NativeJournal(_Log):
    def __init__(self, fs: FileSystem) -> None:
        self.log = Journal(FOLDER, fs=fs, settings=SETTINGS)

    def write(self) -> None:
        self.log.append(MARK)

    def holds(self) -> bool:
        return MARK in [one.body for one in self.log.replay()]


class _Role(_Log):
    ROLE: Any

    def __init__(self, fs: FileSystem) -> None:
        log = TallyLog(FOLDER, settings=SETTINGS, fs=fs)
        try:
            self.log = self.ROLE(log)
        except BaseException:
            log.close()
            raise


class NativeDecisions(_Role):
    ROLE = TallyDecisionLog

    def write(self) -> None:
        self.log.decide(GTRID, ("jdbc/a",)).wait()

    def holds(self) -> bool:
        self.log.heuristics()
        return GTRID in self.log.open_decisions()


class NativeRecords(_Role):
    ROLE = TallyRecordJournal

    def write(self) -> None:
        self.log.add(NUMBER, MARK).wait()

    def holds(self) -> bool:
        self.log.prepared()
        return NUMBER in [one.record_id for one in self.log.live_records()]


class NativeUndoRedo(_Role):
    ROLE = TallyUndoRedoLog

    def write(self) -> None:
        self.log.log_row(NUMBER, 77, NUMBER, MARK)
        self.log.commit(NUMBER).wait()

    def holds(self) -> bool:
        rows = _Rows()
        self.log.in_doubt()
        self.log.recover(rows)
        return NUMBER in rows.keys


class NativePersist(_Role):
    ROLE = TallyPersistLog

    def write(self) -> None:
        operation = RoleOperation(OperationCode.INSERT, "orders", b"key", MARK)
        self.log.persisting(["fuzzer"], [operation], "fuzzer")[1].wait()

    def holds(self) -> bool:
        return any(one.reference == "fuzzer" for one, _ in self.log.pending())


OPENERS: dict[str, tuple[Callable[[FileSystem], Opener], ...]] = {
    "bitronix": (Bitronix,),
    "cloudtran": (CloudTran,),
    "derby": (Derby,),
    "h2": (H2, H2Store),
    "jboss": (JBoss,),
    "tally": (NativeJournal, NativeDecisions, NativeRecords, NativeUndoRedo, NativePersist, Store),
}
