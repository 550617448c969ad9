"""The native log as a journal of records by id.

In: the calls of `tallystick.roles.RecordJournal`. Out: records submitted to the log, and records
read back from its files.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from tallystick.errors import LogUnreadableError, TransactionUsageError
from tallystick.records import Xid
from tallystick.roles import (
    JournalRecord,
    JournalStep,
    PreparedTransaction,
    Role,
    StepKind,
    Ticket,
)
from tallystick.systems.tally.format.columns import Row, UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.items import Bundle, UnplacedEnding, transaction_number
from tallystick.systems.tally.live.read_back import live_rows
from tallystick.systems.tally.live.roles.base import AnyLog, TallyRole
from tallystick.systems.tally.read.state import LogState


class TallyRecordJournal(TallyRole[AnyLog]):
    """A journal of records by id, in and out of transactions.

    Transactions that were open when the log was last closed, and had not prepared, are rolled
    back.
    """

    role = Role.JOURNAL
    deletes_last = False
    """The elements of a transaction take effect in their order."""

    def _load(self) -> None:
        self.roll_back_open()
        self._open = self._prepared_before()
        self._prepared = self._open.copy()
        """Those of the open ones that were prepared, or were to be."""

    def _prepared_before(self) -> set[int]:
        """Return the transactions that were prepared before the log was opened."""
        with self.log.state() as state:
            return {number for number, one in state.open.items() if one.ending}

    def _end(self, transaction: int) -> None:
        """Note that a transaction ends.

        Raises:
            TransactionUsageError: it never began.
        """
        transaction = transaction_number(transaction)
        if transaction not in self._open:
            raise TransactionUsageError(
                f"transaction {transaction} is not open", file=self.log.path
            )
        self._open.discard(transaction)
        self._prepared.discard(transaction)

    def check_size(self, size: int) -> None:
        """Check that a record with a body of ``size`` bytes fits in a segment."""
        self.log.check_size(size)

    def add(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket:
        """Add a record outside of transactions."""
        return self.log.submit(UnplacedRecord(Code.ADD, body, None, record_id, user_type))

    def update(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket:
        """Update a record outside of transactions."""
        return self.log.submit(UnplacedRecord(Code.UPDATE, body, None, record_id, user_type))

    def delete(self, record_id: int) -> Ticket:
        """Delete a record outside of transactions."""
        self._reclaim_after_roll()
        return self.log.submit(UnplacedRecord(Code.DELETE, b"", None, record_id))

    def add_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None:
        """Add a record in a transaction."""
        self._element(UnplacedRecord(Code.ADD, body, transaction, record_id, user_type))

    def update_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None:
        """Update a record in a transaction."""
        self._element(UnplacedRecord(Code.UPDATE, body, transaction, record_id, user_type))

    def delete_in(self, transaction: int, record_id: int, body: bytes = b"") -> None:
        """Delete a record in a transaction."""
        self._element(UnplacedRecord(Code.DELETE, body, transaction, record_id))

    def _element(self, record: UnplacedRecord) -> None:
        number = transaction_number(record.transaction)
        self.log.refusals.require_room()
        self.log.submit(record, sync=False)
        self._open.add(number)

    def prepare(self, transaction: int, extra: bytes = b"", xid: Xid | None = None) -> Ticket:
        """Prepare a transaction, as a branch if it has an ``xid``."""
        ticket = self.log.submit(UnplacedEnding(Code.PREPARE, transaction, xid, extra))
        number = transaction_number(transaction)
        self._open.add(number)
        self._prepared.add(number)
        return ticket

    def commit(self, transaction: int) -> Ticket:
        """Commit a transaction.

        Raises:
            TransactionUsageError: it is not open.
        """
        self._reclaim_after_roll()
        self._end(transaction)
        return self.log.submit(UnplacedEnding(Code.COMMIT, transaction))

    def rollback(self, transaction: int) -> Ticket:
        """Roll back a transaction.

        Raises:
            TransactionUsageError: it is not open.
        """
        unprepared = transaction in self._open and transaction not in self._prepared
        self._end(transaction)
        record = UnplacedRecord(Code.ROLLBACK, b"", transaction)
        # A bundle is owed where it is refused: it is rolled back in any case. But one that is
        # prepared can still be committed.
        return self.log.submit(Bundle((record,)) if unprepared else record)

    def live_records(self) -> Iterator[JournalRecord]:
        """Yield adds and updates of live ids, in log order; they are read from the files.

        Those of one id are in the order in which they took effect: where that is another one, when
        the last of them is read.
        """
        return self._live_records(self._live_lsns())

    def _live_records(self, wanted: dict[int, _Lsns | None]) -> Iterator[JournalRecord]:
        with self.log.hold(self.log.first_segment):
            for left in reversed(range(_ATTEMPTS)):
                self.log.flush()  # of other threads' changes some may not be in a file yet
                rows = _as_they_took_effect(live_rows(self.log, wanted), wanted)
                try:
                    first = list(itertools.islice(rows, 1))
                    break
                except LogUnreadableError:
                    # They may have been written again since, and their old places given up.
                    before, wanted = wanted, self._live_lsns()
                    if wanted == before or not left:
                        raise
            yield from (_journal_record(row.record) for row in itertools.chain(first, rows))

    def _live_lsns(self) -> dict[int, _Lsns | None]:
        """Return the LSNs of live elements; with all of its id where their order is another one."""
        with self.log.state() as state:
            every = [tuple([one.lsn for one in elements]) for elements in state.live.values()]
        ordered = ((one, None if list(one) == sorted(one) else one) for one in every)
        return {lsn: order for lsns, order in ordered for lsn in lsns}

    def in_doubt(self) -> Mapping[int, bytes]:
        """Return the extra data of each prepared transaction, by number; reads no bodies."""
        with self.log.state() as state:
            return {
                number: one.ending.extra
                for number, one in state.open.items()
                if one.ending is not None
            }

    def prepared(self) -> Sequence[PreparedTransaction]:
        """Return prepared transactions; their bodies are read from the files, all at once."""
        with self.log.state() as state:
            return tuple(_prepared(self.log, state))


_ATTEMPTS: Final = 10
"""Times that live records are looked for while they are moved."""
_Lsns: TypeAlias = tuple[int, ...]

_STEPS: dict[int, StepKind] = {
    Code.APPEND: StepKind.APPEND,
    Code.ADD: StepKind.ADD,
    Code.UPDATE: StepKind.UPDATE,
    Code.DELETE: StepKind.DELETE,
}


def _as_they_took_effect(rows: Iterator[Row], orders: Mapping[int, _Lsns | None]) -> Iterator[Row]:
    """Yield rows in log order, those of an id with an order of its own together, in that one."""
    waiting: dict[int, Row] = {}
    for row in rows:
        order = orders[row.lsn]
        if order is None:
            yield row
            continue
        waiting[row.lsn] = row
        if row.lsn == max(order):
            yield from map(waiting.pop, order)


def _journal_record(record: UnplacedRecord) -> JournalRecord:
    update = record.code in (Code.UPDATE, Code.MOVED_UPDATE)
    return JournalRecord(record.key or 0, record.user_type, record.body, update)


def _prepared(log: AnyLog, state: LogState) -> Iterator[PreparedTransaction]:
    found = [(number, one) for number, one in state.open.items() if one.ending is not None]
    owners = {element.lsn: number for number, one in found for element in one.elements}
    read: defaultdict[int, list[UnplacedRecord]] = defaultdict(list)
    for row in live_rows(log, owners.keys()):
        read[owners[row.lsn]].append(row.record)
    for number, one in found:
        assert one.ending is not None
        rows = read[number]
        steps = tuple(
            JournalStep(_STEPS[record.code], record.key, record.user_type, record.body)
            for record in rows
        )
        records = [_journal_record(one) for one in rows if one.code in (Code.ADD, Code.UPDATE)]
        deletes = [one.key or 0 for one in rows if one.code == Code.DELETE]
        yield PreparedTransaction(
            number, tuple(records), tuple(deletes), one.ending.extra, one.ending.xid, steps
        )
