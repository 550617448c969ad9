"""Transactions, decisions and persisting entries of a native log.

In: records in log order. Out: `Transaction` objects. Memory grows with the number of the open
ones, of decisions and of entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from tallystick.records import Outcome, Record, State, Transaction
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import SYSTEM_NAME
from tallystick.systems.tally.read.state import Incomplete

JOURNAL = frozenset(
    code.type_name
    for code in (Code.BEGIN, Code.ADD, Code.UPDATE, Code.DELETE, Code.APPEND, Code.REDO_ADD,
                 Code.REDO_REMOVE, Code.TRUNCATE, Code.PREPARE, Code.COMMIT, Code.ROLLBACK)
)  # fmt: skip
"""Types of the records of journal transactions."""
_STATES = {"prepare": State.PREPARED, "commit": State.COMMITTED, "rollback": State.ROLLED_BACK}


class TransactionTable:
    """Collects records into transactions; ``begun`` is called with each at its first record's LSN.

    Attributes:
        numbers: those of the journal transactions that are open.
    """

    def __init__(
        self, log: str, incomplete: Incomplete, begun: Callable[[int, Transaction], None]
    ) -> None:
        self.numbers: set[int] = set()
        self._log = log
        self._incomplete = incomplete
        self._begun = begun
        self._open: dict[str, Transaction] = {}
        self._closed: dict[str, None] = {}

    @property
    def kept(self) -> Iterable[Transaction]:
        """Decisions, entries, and transactions that have not ended."""
        return self._open.values()

    def take_all(self, records: Iterable[Record]) -> list[Transaction]:
        """Apply the valid ones of some records; return the transactions that they end for good."""
        ended = (self.take(one) for one in records if one.outcome is Outcome.VALID)
        return [one for one in ended if one is not None]

    def take(self, record: Record) -> Transaction | None:
        """Apply one record; return the transaction that it ends for good."""
        if record.type in JOURNAL and record.transaction is not None:
            return self._journal(record)
        if record.gtrid is not None:
            self._note(self._decision(record))
        elif record.type in ("persisting", "persisted", "discard"):
            self._note(self._entry(record))
        return None

    def forget_closed(self, keep: int) -> list[Transaction]:
        """Forget decisions and entries of which nothing is open, but for the latest ``keep``."""
        oldest = list(islice(self._closed, max(len(self._closed) - keep, 0)))
        for key in oldest:
            del self._closed[key]
        return [self._open.pop(key) for key in oldest]

    def _note(self, one: Transaction) -> None:
        self._closed.pop(one.key, None)
        if one.state in (State.COMMITTED, State.ROLLED_BACK):
            self._closed[one.key] = None

    def _journal(self, record: Record) -> Transaction | None:
        number = record.transaction or 0
        one = self._of(f"{number}", record, State.ACTIVE)
        one.transaction = number
        self.numbers.add(number)
        if record.type == "prepare":
            one.gtrid, one.format_id, one.bqual = record.gtrid, record.format_id, record.bqual
            extra = record.attributes.get("extra", b"")
            one.name = extra.decode("utf-8", "replace") or None
        state = _STATES.get(record.type)
        if state is None:
            return None
        self._decide(one, record, state)
        _, holes = self._incomplete.get(record.sequence or 0, (0, ""))
        if holes and state is not State.ROLLED_BACK:
            one.state, one.complete, one.holes = State.INCOMPLETE, False, holes
        if state is State.PREPARED:
            return None
        self.numbers.discard(number)
        return self._open.pop(one.key)

    def _decision(self, record: Record) -> Transaction:
        assert record.gtrid is not None
        one = self._of(f"gtrid:{record.gtrid.hex()}", record, State.UNDECIDED)
        one.gtrid = record.gtrid
        match record.type:
            case "note":
                state = record.attributes.get("state", "")
                known = state in {item.value for item in State}
                if one.state is not State.COMMITTING:
                    self._decide(one, record, State(state) if known else State.UNKNOWN)
            case "decision":
                one.participants = _union(one.participants, record.resources)
                one.open_participants = _union(one.open_participants, record.resources)
                self._decide(one, record, State.COMMITTING)
            case "settle":
                one.attributes["settled"] = True
            case _:
                self._finish(one, record)
        return one

    def _finish(self, one: Transaction, record: Record) -> None:
        done = set(record.resources)
        one.open_participants = tuple(name for name in one.open_participants if name not in done)
        if record.type == "heuristic":
            one.participants = _union(one.participants, record.resources)
            self._decide(one, record, State.HEURISTIC)
        elif not one.open_participants and one.state is not State.HEURISTIC:
            rolled_back = record.attributes.get("outcome") == "rolled_back"
            self._decide(one, record, State.ROLLED_BACK if rolled_back else State.COMMITTED)

    def _entry(self, record: Record) -> Transaction:
        one = self._of(f"entry:{record.record_id}", record, State.PENDING)
        one.transaction = record.record_id
        if record.type == "persisting":
            if not one.participants:
                one.participants = one.open_participants = record.resources
                one.name = record.attributes.get("reference") or None
            self._decide(one, record, one.state)
            return one
        done = set(record.resources) or set(one.open_participants)
        one.open_participants = tuple(name for name in one.open_participants if name not in done)
        if not one.open_participants:
            self._decide(one, record, State.COMMITTED)
        return one

    def _of(self, key: str, record: Record, state: State) -> Transaction:
        one = self._open.get(key)
        if one is None:
            one = Transaction(SYSTEM_NAME, self._log, key, state, first_time=record.time)
            one.evidence = (record.file, record.offset)
            one.evidence_type = record.type
            self._open[key] = one
            self._begun(record.sequence or 0, one)
        one.records += 1
        one.bytes += len(record.body or b"")
        one.last_time = record.time
        if record.file not in one.files:
            one.files = (*one.files, record.file)
        return one

    def _decide(self, one: Transaction, record: Record, state: State) -> None:
        one.state = state
        one.evidence = (record.file, record.offset)
        one.evidence_type = record.type


def _union(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *new)))
