"""The circular journal in the role of a `RecordJournal`.

In: the calls of `tallystick.roles.RecordJournal`. Out: those of `CircularJournal`.
Bodies are not kept in memory: `live_records` and `prepared` read them from the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallystick.roles import JournalRecord, PreparedTransaction, Ticket
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.jboss.format.layout import Item, Name
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings
from tallystick.systems.jboss.read.replay import Open


class JBossRecordJournal:
    """A `RecordJournal` in the files of Artemis, or of JBoss Messaging 2008.

    Ids and transaction numbers are signed 64-bit numbers of the caller's. In generation g1a extra
    data of a prepare and bodies of deletes are not stored; there a prepare needs a record before.
    """

    def __init__(
        self, folder: str, settings: JournalSettings | None = None, *, fs: FileSystem = LOCAL
    ) -> None:
        self.journal = CircularJournal(folder, settings, fs=fs)

    def add(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket:
        return self.journal.append_add_record(record_id, user_type, body)

    def update(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket:
        return self.journal.append_update_record(record_id, user_type, body)

    def delete(self, record_id: int) -> Ticket:
        return self.journal.append_delete_record(record_id)

    def add_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None:
        self.journal.append_add_record_transactional(transaction, record_id, user_type, body)

    def update_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None:
        self.journal.append_update_record_transactional(transaction, record_id, user_type, body)

    def delete_in(self, transaction: int, record_id: int, body: bytes = b"") -> None:
        self.journal.append_delete_record_transactional(transaction, record_id, body)

    def prepare(self, transaction: int, extra: bytes = b"") -> Ticket:
        return self.journal.append_prepare_record(transaction, extra)

    def commit(self, transaction: int) -> Ticket:
        return self.journal.append_commit_record(transaction)

    def rollback(self, transaction: int) -> Ticket:
        return self.journal.append_rollback_record(transaction)

    def live_records(self) -> Iterator[JournalRecord]:
        """Adds and updates of live ids, by id in order of first adds; as of this call."""
        live, _ = self.journal.contents()
        return (_record(item) for items in live.values() for item in items)

    def prepared(self) -> Sequence[PreparedTransaction]:
        """Transactions in doubt, in order of their first records; as of this call."""
        _, in_doubt = self.journal.contents()
        return [_prepared(one) for one in in_doubt]

    def close(self) -> None:
        self.journal.close()


def _record(item: Item) -> JournalRecord:
    update = item.name in (Name.UPDATE, Name.UPDATE_TX)
    return JournalRecord(item.record_id or 0, item.user_type or 0, item.body or b"", update)


def _prepared(one: Open) -> PreparedTransaction:
    extra = one.prepared.item.extra if one.prepared is not None else None
    deletes = tuple(placed.item.record_id or 0 for placed in one.deletes)
    records = tuple(_record(placed.item) for placed in one.records)
    return PreparedTransaction(one.transaction, records, deletes, extra or b"")
