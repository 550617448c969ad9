"""What every judge of a log asks of its records, found in one pass.

In: the entries of a scan, one after the other. Out: a `LogDigest`: records by outcome, faults, how
the log ends, transactions by state. Memory grows with open transactions only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystick.records import Outcome, State
from tallystick.storage.files import Bytes
from tallystick.systems.h2.format.entries import INCOMPLETE, TABLE_META, UNKNOWN, Entry, Type
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.types import CONVERTED, NEWER, holds_type
from tallystick.systems.h2.read.records import outcome_of
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.read.transactions import LoggedTransaction, Tracker
from tallystick.systems.h2.runs.pieces import LogPieces
from tallystick.systems.runs import RunCount

if TYPE_CHECKING:
    from tallystick.systems.h2.runs.chunk import Chunk
    from tallystick.systems.h2.runs.transactions import Ledger

_PROMISED = (State.COMMITTED, State.PREPARED)
"""States in which the engine has acknowledged something."""
_PAGE_ENDS = (Type.CHECKPOINT, Type.PREPARE_COMMIT)
"""Records after which a page is filled with zeros and the log goes on with the next one."""


@dataclass(slots=True)
class Fault:
    """Entries of one kind of fault: how many, and the first one's place and text."""

    start: int
    text: str
    count: int = 0


def _read_differently(entry: Entry, row: Bytes, damaged: bool) -> bool:
    """Return whether versions of the engine do not make the same of a record's row."""
    types: frozenset[int] = NEWER if damaged else frozenset()
    if entry.table == TABLE_META:
        types |= CONVERTED
    return bool(types) and holds_type(row, Zone(), types)


@dataclass(slots=True)
class LogDigest:
    """The records of a log in figures.

    Attributes:
        outcomes: records by outcome; none after the first that is a guess of the engine.
        faults: by the code of their finding, in the order in which they were met.
        last: the last entry but no-ops.
        filled: no-ops follow the last entry.
        after_fill: where in the stream records begin that follow no-ops inside a page.
        known_to: the offset in the stream after the last record of a known type.
        states: transactions by state.
        prepared: transactions in doubt.
        uncommitted: how many transactions changed something and did not end.
        oldest: of these and of those in doubt, the one that began first.
        versions_differ_from: the position of the first record that versions of the engine read
            differently: a damaged row with a value of a type that not all of them know, as what is
            taken for the next record depends on that; or a row of the page index with a value that
            each converts to a number in its own way. None if there is none.
        count: records that were read in runs, and one by one.
        odd_rows: an added row was read one by one in a log that is read in runs. Not the rows that
            the engine never writes, which `Tables.odd_rows` tells of.
    """

    stream: LogStream
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    faults: dict[str, Fault] = field(default_factory=dict)
    last: Entry | None = None
    filled: bool = False
    after_fill: list[int] = field(default_factory=list)
    known_to: int = 0
    states: Counter[State] = field(default_factory=Counter)
    prepared: list[LoggedTransaction] = field(default_factory=list)
    uncommitted: int = 0
    oldest: LoggedTransaction | None = None
    versions_differ_from: int | None = None
    count: RunCount = field(default_factory=RunCount)
    odd_rows: bool = False
    _guessed: bool = False
    _transactions: Tracker = field(default_factory=Tracker)
    _ledger: Ledger | None = None

    @property
    def decided(self) -> int:
        """How many transactions are committed or in doubt: the engine has acknowledged them."""
        return sum(self.states[state] for state in _PROMISED)

    @property
    def flushed_end(self) -> bool:
        """Whether the last page ends in the zeros of a flush, which only the last one has."""
        return self.last is not None and self.filled and self.last.code not in _PAGE_ENDS

    def observe(self, entry: Entry) -> None:
        """Take the next entry of a log that is read one by one; its row and values are dropped."""
        self._observe(entry)
        ended = self._transactions.add(entry)
        if ended is not None:
            self.states[ended.state] += 1

    def observe_odd(self, log: LogPieces, chunk: Chunk) -> None:
        """Take records that are read one by one between runs; their rows and values are dropped."""
        for entry in chunk.odd:
            self.odd_rows |= entry.code == Type.ADD
            self._observe(entry)
        self.states.update(self._followed(log).add(chunk).states())

    def _observe(self, entry: Entry) -> None:
        self.count.one_by_one += 1
        row, entry.row, entry.values = entry.row, b"", ()
        # After an unknown or incomplete record the engine reads on somewhere inside of another one.
        if not self._guessed:
            self.outcomes[outcome_of(entry, self.stream)] += 1
            self._guessed = not entry.is_known
        if code := fault_code(entry):
            text = entry.fault or f"its session has the number {entry.session}"
            self.faults.setdefault(code, Fault(entry.start, text)).count += 1
        if self.versions_differ_from is None and _read_differently(entry, row, bool(code)):
            self.versions_differ_from = entry.pos
        self._observe_end(entry)

    def observe_chunk(self, log: LogPieces, chunk: Chunk, rows: Iterable[Entry]) -> None:
        """Take records that are in order; ``rows`` are those added to the page index."""
        self.count.in_runs += len(chunk.codes)
        if not self._guessed:
            self.outcomes[Outcome.VALID] += len(chunk.codes)
        for entry in rows:
            if self.versions_differ_from is None and _read_differently(entry, entry.row, False):
                self.versions_differ_from = entry.pos
        self._observe_chunk_end(log, chunk)
        self.states.update(self._followed(log).add(chunk).states())

    def _followed(self, log: LogPieces) -> Ledger:
        if self._ledger is None:
            from tallystick.systems.h2.runs.transactions import Ledger

            self._ledger = Ledger(log)
        return self._ledger

    def finish(self) -> None:
        """Count the transactions that are open at the end."""
        rest = [*self._transactions.rest()]
        self.oldest = min(
            (one for one in rest if one.count), key=lambda one: one.begin, default=None
        )
        # A log in runs has all its transactions in the ledger, any other one in the tracker.
        if self._ledger is not None:
            self.oldest = self._ledger.oldest()
            active, changed = self._ledger.active()
            self.states.update({State.ACTIVE: active} if active else {})
            self.uncommitted += changed
            rest = [*self._ledger.rest(prepared=True)]
        for one in rest:
            self.states[one.state] += 1
            if one.state is State.PREPARED:
                self.prepared.append(one)
            elif one.count:
                self.uncommitted += 1

    def _observe_chunk_end(self, log: LogPieces, chunk: Chunk) -> None:
        # A writer fills a page and goes on with the next one: what follows no-ops within a page was
        # written over a prepare record.
        starts = chunk.starts[chunk.follow_noops(self.filled)]
        self.after_fill += starts[starts % self.stream.body_size != 0].tolist()
        for entry in log.of_chunk(chunk, chunk.last_but_noops()):
            self.last = entry
        self.filled = int(chunk.codes[-1]) == Type.NOOP
        self.known_to = chunk.end

    def _observe_end(self, entry: Entry) -> None:
        noop = entry.code == Type.NOOP
        if self.filled and not noop and entry.start % self.stream.body_size:
            self.after_fill.append(entry.start)
        self.filled = noop
        if not noop:
            self.last = entry
        self.known_to = entry.start + (entry.length if entry.is_known else 0)


def fault_code(entry: Entry) -> str:
    """Return the code of the finding about an entry; empty for one that is in order."""
    if entry.type == INCOMPLETE:
        return "odd-last-record" if entry.odd else "torn-record"
    if entry.type == UNKNOWN:
        return "unknown-record-type"
    if not entry.fault and entry.session >= 0:  # the engine counts sessions from 1 on
        return ""
    return "damaged-undo-image" if entry.code == Type.UNDO else "damaged-row"
