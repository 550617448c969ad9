"""The native log in each role of the house: thin faces over one `TallyLog`.

In: the calls of `tallystick.services.roles`. Out: drafts submitted to the log, and views of its
state. A role owns the log that it is given and closes it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from tallystick.errors import LogWriteError, TransactionUsageError
from tallystick.records import State
from tallystick.services.roles import (
    Decision,
    DecisionOutcome,
    JournalRecord,
    Operation,
    OperationCode,
    PersistEntry,
    PreparedTransaction,
    Ticket,
)
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.storage.tickets import GroupTicket
from tallystick.systems.tally.carry import Bundle, heuristic
from tallystick.systems.tally.columns import Draft
from tallystick.systems.tally.items import RECORD_BYTES, EndingDraft, Item
from tallystick.systems.tally.kinds import (
    OPERATION_CODES,
    Code,
    decode_entry,
    encode_names,
    encode_note,
)
from tallystick.systems.tally.layout import segment_name, segment_number
from tallystick.systems.tally.live import live_rows, open_elements
from tallystick.systems.tally.log import TallyLog
from tallystick.systems.tally.persisting import encode_persisting
from tallystick.systems.tally.settings import Settings
from tallystick.systems.tally.state import LogState

MARKS_MAX = 256
"""Marks that are submitted as one."""


class Role:
    """Common to all: one log, open or to be opened at a path, and recycling once it rolled."""

    settings = Settings()
    """How a log is written that the role opens by itself."""

    def __init__(self, log: TallyLog | str, *, fs: FileSystem = LOCAL) -> None:
        self.log = (
            log if isinstance(log, TallyLog) else TallyLog(log, settings=self.settings, fs=fs)
        )
        self._seen = self.log.last_segment

    def _recycle(self) -> None:
        if self.log.last_segment != self._seen:
            self._seen = self.log.last_segment
            self.log.reclaim_soon()

    def roll_back_open(self) -> None:
        """End transactions that an earlier owner left open and had not prepared, so that their
        numbers can be used again. Not forced: it only has to come before any later record."""
        with self.log.state() as state:
            left = [number for number, one in state.open.items() if one.ending is None]
        for number in left:
            self.log.submit(Draft(Code.ROLLBACK, b"", number), sync=False)

    def close(self) -> None:
        """Close the log; a second call does nothing."""
        self.log.close()


# -- decision log -------------------------------------------------------------------------


class TallyDecisionLog(Role):
    """A two-phase-commit coordinator's log. Only `decide` and `settle` are forced."""

    def note(self, state: State, gtrid: bytes, resources: Collection[str]) -> None:
        """Record a status that decides nothing, without forcing."""
        self.log.submit(Draft(Code.NOTE, encode_note(state, resources), gtrid=gtrid), sync=False)

    def decide(self, gtrid: bytes, resources: Collection[str]) -> Ticket:
        """Record the decision to commit."""
        self._recycle()
        return self.log.submit(Draft(Code.DECISION, encode_names(resources), gtrid=gtrid))

    def finish(self, gtrid: bytes, resources: Collection[str], outcome: DecisionOutcome) -> None:
        """Record, without forcing, that these resources have ended so."""
        if outcome is DecisionOutcome.HEURISTIC:
            draft = heuristic(gtrid, frozenset(resources))
        else:
            body = encode_names(resources, outcome.value.encode())
            draft = Draft(Code.FINISH, body, gtrid=gtrid)
        self.log.submit(draft, sync=False)

    def open_decisions(self) -> Mapping[bytes, Decision]:
        """Decisions not closed for all of their resources, by gtrid. Times are in ms."""
        with self.log.state() as state:
            return {
                gtrid: Decision(gtrid, frozenset(one.resources), one.time_us // 1000)
                for gtrid, one in state.decisions.items()
            }

    def heuristics(self) -> Mapping[bytes, frozenset[str]]:
        """Heuristic outcomes that no operator has settled yet, by gtrid."""
        with self.log.state() as state:
            return {gtrid: names for gtrid, (_, names) in state.heuristics.items()}

    def settle(self, gtrid: bytes) -> Ticket:
        """Record durably that an operator has dealt with a heuristic outcome."""
        return self.log.submit(Draft(Code.SETTLE, gtrid=gtrid))


# -- persist log --------------------------------------------------------------------------


class TallyPersistLog(Role):
    """Persisting and persisted. Files go to a disposer, unless the log is opened with
    ``Settings(recycle=True)`` and recycles them by itself."""

    settings = Settings(recycle=False)

    def __init__(self, log: TallyLog | str, *, fs: FileSystem = LOCAL) -> None:
        super().__init__(log, fs=fs)
        with self.log.state() as state:
            self._next = state.next_key
        self._number_lock = threading.Lock()  # ties the numbers to the order of the log
        self._marks: deque[tuple[Bundle, GroupTicket[Item]]] = deque()

    def persisting(
        self, targets: Sequence[str], operations: Iterable[Operation], reference: str = ""
    ) -> tuple[int, Ticket]:
        """Record a transaction; its number grows in commit order."""
        body = encode_persisting(tuple(targets), operations, reference)
        with self._number_lock:
            number = self._next
            ticket = self.log.submit(Draft(Code.PERSISTING, body, key=number))
            self._next = number + 1
        return number, ticket

    def persisted(self, number: int, targets: Collection[str]) -> None:
        """Record, without forcing, that these targets hold it."""
        self.persisted_all((number,), targets)

    def persisted_all(self, numbers: Sequence[int], targets: Collection[str]) -> None:
        """Record, without forcing, that these targets hold each of them."""
        body = encode_names(targets)
        most = max(1, min(MARKS_MAX, self.log.capacity // (len(body) + RECORD_BYTES)))
        for start in range(0, len(numbers), most):
            some = numbers[start : start + most]
            bundle = Bundle(tuple(Draft(Code.PERSISTED, body, None, number) for number in some))
            self._marks.append((bundle, self.log.submit(bundle, sync=False)))
        self._mark_again()

    def _mark_again(self) -> None:
        """Nobody waits for marks: those for which there was no room are submitted anew."""
        with self._number_lock:
            for _ in range(len(self._marks)):
                bundle, ticket = self._marks[0]
                if not ticket.finished:
                    return
                self._marks.popleft()
                try:
                    ticket.wait()
                except LogWriteError:
                    self._marks.append((bundle, self.log.submit(bundle, sync=False)))

    def lowest_pending(self) -> int | None:
        """The smallest number that is pending in what is durable."""
        with self.log.state() as state:
            return min(state.pending, default=None)

    def discard(self, number: int) -> Ticket:
        """An operator's durable decision not to persist what is still pending. Raises `KeyError`
        for a number that is not pending."""
        with self.log.state() as state:
            if number not in state.pending:
                raise KeyError(number)
        return self.log.submit(Draft(Code.DISCARD, key=number))

    def pending(self) -> Iterator[tuple[PersistEntry, frozenset[str]]]:
        """Entries with the targets that do not hold them yet, by ascending number."""
        with self.log.state() as state:
            found = sorted(
                (number, one.time_us, one.body, frozenset(one.remaining))
                for number, one in state.pending.items()
            )
        return ((_entry(number, time, body), rest) for number, time, body, rest in found)

    def sync(self) -> Ticket:
        """Everything recorded so far, persisted marks included."""
        self._mark_again()
        return self.log.barrier()

    def ask_first(self, agreed: Callable[[str], bool]) -> None:
        """Have no file given up, recycled or disposed of that ``agreed(path)`` is not true for."""
        self.log.ask_before_reclaiming(agreed)

    def disposable(self) -> Sequence[str]:
        """Files that a disposer may take now, oldest first."""
        self._mark_again()
        self.log.reclaim()
        if self.log.settings.recycle:
            return []
        numbers = [
            number
            for name in self.log.fs.list(self.log.path)
            if (number := segment_number(name)) is not None and number < self.log.first_segment
        ]
        return [f"{self.log.path}/{segment_name(number)}" for number in sorted(numbers)]

    def disposed(self, path: str) -> None:
        """A disposer has taken this file: its name is gone for good when this returns."""
        if self.log.fs.exists(path):
            raise LogWriteError("the file is still in the log", file=path)
        self.log.fs.sync_dir(self.log.path)

    def roll(self) -> None:
        """Go on in a new segment, so that the current one can become disposable."""
        self.log.roll()

    def carry_forward(self, most: int = 16) -> None:
        """Write what pins the oldest segment again, if that is few entries, so that stuck ones do
        not keep every later file."""
        self.log.reclaim_soon(carry_after=0, carry_most=most)
        self.log.flush()


def _entry(number: int, time_us: int, body: bytes) -> PersistEntry:
    targets, reference, operations = decode_entry(body)
    return PersistEntry(
        number,
        targets,
        tuple(
            Operation(
                OperationCode(OPERATION_CODES[one.code]),
                one.collection,
                one.key,
                one.value,
                None if one.target is None else targets[one.target],
            )
            for one in operations
        ),
        reference,
        time_us,
    )


# -- record journal -----------------------------------------------------------------------


class TallyRecordJournal(Role):
    """A journal of records by id, in and out of transactions.

    Transactions that were open when the log was last closed, and had not prepared, are rolled
    back.
    """

    def __init__(self, log: TallyLog | str, *, fs: FileSystem = LOCAL) -> None:
        super().__init__(log, fs=fs)
        self.roll_back_open()
        with self.log.state() as state:
            self._open = {number for number, one in state.open.items() if one.ending}

    def _end(self, transaction: int) -> None:
        """The transaction ends now. Raises `TransactionUsageError` if it never began."""
        if transaction not in self._open:
            raise TransactionUsageError(
                f"transaction {transaction} is not open", file=self.log.path
            )
        self._open.discard(transaction)

    def add(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket:
        return self.log.submit(Draft(Code.ADD, body, None, record_id, user_type))

    def update(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket:
        return self.log.submit(Draft(Code.UPDATE, body, None, record_id, user_type))

    def delete(self, record_id: int) -> Ticket:
        self._recycle()
        return self.log.submit(Draft(Code.DELETE, b"", None, record_id))

    def add_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None:
        self._element(Draft(Code.ADD, body, transaction, record_id, user_type))

    def update_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None:
        self._element(Draft(Code.UPDATE, body, transaction, record_id, user_type))

    def delete_in(self, transaction: int, record_id: int, body: bytes = b"") -> None:
        self._element(Draft(Code.DELETE, body, transaction, record_id))

    def _element(self, draft: Draft) -> None:
        self.log.submit(draft, sync=False)
        self._open.add(draft.transaction or 0)

    def prepare(self, transaction: int, extra: bytes = b"") -> Ticket:
        self._open.add(transaction)
        return self.log.submit(EndingDraft(Code.PREPARE, transaction, None, extra))

    def commit(self, transaction: int) -> Ticket:
        self._recycle()
        self._end(transaction)
        return self.log.submit(EndingDraft(Code.COMMIT, transaction))

    def rollback(self, transaction: int) -> Ticket:
        self._end(transaction)
        return self.log.submit(Draft(Code.ROLLBACK, b"", transaction))

    def live_records(self) -> Iterator[JournalRecord]:
        """Adds and updates of live ids, in log order; read from the files."""
        with self.log.state() as state:
            wanted = {one.lsn for _, one in state.live_lsns()}
        return (_journal_record(row.draft) for row in live_rows(self.log, wanted))

    def prepared(self) -> Sequence[PreparedTransaction]:
        """Prepared transactions; their bodies are read from the files."""
        with self.log.state() as state:
            return tuple(_prepared(self.log, state))


def _journal_record(draft: Draft) -> JournalRecord:
    update = draft.code in (Code.UPDATE, Code.MOVED_UPDATE)
    return JournalRecord(draft.key or 0, draft.user_type, draft.body, update)


def _prepared(log: TallyLog, state: LogState) -> Iterator[PreparedTransaction]:
    for number, one in state.open.items():
        if one.ending is None:
            continue
        rows = open_elements(log, one)
        records = [_journal_record(row.draft) for row in rows if row.draft.code != Code.DELETE]
        deletes = [row.draft.key or 0 for row in rows if row.draft.code == Code.DELETE]
        yield PreparedTransaction(number, tuple(records), tuple(deletes), one.ending.extra)
