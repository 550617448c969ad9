"""The circular journal in the role of a `RecordJournal`.

In: the calls of `tallystick.roles.RecordJournal`. Out: those of `CircularJournal`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from tallystick.arguments import settings_of
from tallystick.errors import LogWriteError
from tallystick.records import Xid
from tallystick.roles import (
    JournalRecord,
    JournalStep,
    PreparedTransaction,
    Role,
    StepKind,
    Ticket,
)
from tallystick.storage.files import FileSystem
from tallystick.storage.fork import Uncopied
from tallystick.storage.local import LOCAL
from tallystick.systems.jboss.format.bodies import pack_xid
from tallystick.systems.jboss.format.bodies import xid as xid_of
from tallystick.systems.jboss.format.file_names import extension_of, prefix_of
from tallystick.systems.jboss.format.layout import FILE_SIZE_MIN, Item, RecordType
from tallystick.systems.jboss.live.log import CircularJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.jboss.read.files import JournalFiles, most_common, open_files
from tallystick.systems.jboss.read.replay import OpenTransaction
from tallystick.systems.protocol import LogReading


def reopen(
    folder: str, _role: Role, like: LogReading | None, _key: bytes | None, _content: Any, *,
    force: bool,
) -> JBossRecordJournal:  # fmt: skip
    """Open the journal in ``folder``; see `tallystick.systems.protocol.System.reopener`."""
    settings = None if like is None else _settings_of(open_files(like.source))
    return JBossRecordJournal(folder, settings, tolerate_damage=force)


def _settings_of(journal: JournalFiles) -> JournalSettings:
    """Return the settings that the files of a journal were written with."""
    name = next((one.name for one in journal.files), "")
    default = JournalSettings()
    shape = journal.generation.shape.name
    headers = [one.header for one in journal.files if one.header is not None]
    return JournalSettings(
        cast("Any", "g3" if shape == "hash" else shape),
        "hash" if shape == "hash" else "size",
        prefix_of(name) or default.prefix,
        extension_of(name) or default.extension,
        max((one.size for one in journal.files if one.size >= FILE_SIZE_MIN), default=10 << 20),
        user_version=most_common(one.user_version for one in headers) or 0,
    )


class JBossRecordJournal(Uncopied):
    """A `RecordJournal` in the files of Artemis, or of JBoss Messaging 2008.

    Record ids and transactions are signed 64-bit numbers that the caller chooses. Generation g1a
    does not store extra data of a prepare and bodies of deletes; there only a transaction with
    records can be prepared. `live_records` and `prepared` read bodies from the files.
    """

    deletes_last = True
    """All loaders apply the deletes of a transaction after its adds and updates."""

    def __init__(
        self,
        folder: str,
        settings: JournalSettings | Mapping[str, Any] | None = None,
        *,
        fs: FileSystem = LOCAL,
        tolerate_damage: bool = False,
    ) -> None:
        chosen = settings_of(settings, JournalSettings)
        self.journal = CircularJournal(folder, chosen, fs=fs, tolerate_damage=tolerate_damage)

    @property
    def refused(self) -> int:
        """Number of records that were refused after they had been submitted."""
        return self.journal.refused

    def check_size(self, size: int) -> None:
        """Check that a record with a body of ``size`` bytes fits in a file."""
        self.journal.check_size(size)

    def add(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket:
        """Add a record outside of transactions."""
        return self.journal.append_add_record(record_id, user_type, body)

    def update(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket:
        """Update a live record outside of transactions."""
        return self.journal.append_update_record(record_id, user_type, body)

    def delete(self, record_id: int) -> Ticket:
        """Delete a live record outside of transactions."""
        return self.journal.append_delete_record(record_id)

    def add_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None:
        """Add a record in a transaction."""
        self.journal.append_add_record_transactional(transaction, record_id, user_type, body)

    def update_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None:
        """Update a record in a transaction."""
        self.journal.append_update_record_transactional(transaction, record_id, user_type, body)

    def delete_in(self, transaction: int, record_id: int, body: bytes = b"") -> None:
        """Delete a record in a transaction."""
        self.journal.append_delete_record_transactional(transaction, record_id, body)

    def prepare(self, transaction: int, extra: bytes = b"", xid: Xid | None = None) -> Ticket:
        """Prepare a transaction; ``extra`` is its Xid, in the form of the original.

        Raises:
            LogWriteError: ``extra`` is something else than the ``xid`` that was given.
        """
        if xid is not None:
            packed = pack_xid(xid)
            if extra not in (b"", packed):
                raise LogWriteError("the extra data of a prepare is its Xid, and nothing else")
            extra = packed
        return self.journal.append_prepare_record(transaction, extra)

    def commit(self, transaction: int) -> Ticket:
        """Commit a transaction."""
        return self.journal.append_commit_record(transaction)

    def rollback(self, transaction: int) -> Ticket:
        """Roll a transaction back."""
        return self.journal.append_rollback_record(transaction)

    def live_records(self) -> Iterator[JournalRecord]:
        """Return adds and updates of live ids as of this call, by id in order of first adds."""
        live, _ = self.journal.contents()
        return (_record(item) for items in live.values() for item in items)

    def prepared(self) -> Sequence[PreparedTransaction]:
        """Return the transactions in doubt as of this call, in order of their first records."""
        _, in_doubt = self.journal.contents()
        return [_prepared(one) for one in in_doubt]

    def close(self) -> None:
        """Make everything durable and close the files."""
        self.journal.close()


_STEPS = {
    RecordType.ADD_TX: StepKind.ADD,
    RecordType.UPDATE_TX: StepKind.UPDATE,
    RecordType.DELETE_TX: StepKind.DELETE,
}


def _record(item: Item) -> JournalRecord:
    update = item.type in (RecordType.UPDATE, RecordType.UPDATE_TX)
    return JournalRecord(item.record_id or 0, item.user_type or 0, item.body or b"", update)


def _prepared(one: OpenTransaction) -> PreparedTransaction:
    extra = (one.prepared.item.extra if one.prepared is not None else None) or b""
    deletes = tuple(placed.item.record_id or 0 for placed in one.deletes)
    records = tuple(_record(placed.item) for placed in one.records)
    # The loaders apply adds and updates first, then deletes, wherever these stood.
    steps = tuple(_step(placed.item) for placed in (*one.records, *one.deletes))
    return PreparedTransaction(one.transaction, records, deletes, extra, xid_of(extra), steps)


def _step(item: Item) -> JournalStep:
    return JournalStep(_STEPS[item.type], item.record_id, item.user_type or 0, item.body or b"")
