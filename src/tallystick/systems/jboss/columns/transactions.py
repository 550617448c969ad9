"""The transactions of a journal as Arrow batches, most of them from columns.

In: the files of a journal. Out: batches of the `TRANSACTIONS` schema with the rows of
`tallystick.systems.jboss.read.transactions.transactions`, in the same order. A transaction that
begins and ends in one file, and of which no count is wrong, is found in columns (`closed_in`); the
others are replayed record by record, and so are those with damaged elements. No batch is
given before the last file was read, because the loader may drop records of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import one_each, repeated, table_batch, whole_transactions
from tallystick.arrow.neighbours import among, ordinals
from tallystick.arrow.schemas import (
    TRANSACTIONS,
    batches_of_transactions,
    plain,
    rebatched,
)
from tallystick.records import Clock, State, Transaction
from tallystick.systems.jboss.columns.kernels import xids_of
from tallystick.systems.jboss.format.bodies import HEURISTIC_TYPE
from tallystick.systems.jboss.format.layout import (
    ADD,
    ROLLBACK,
    SYSTEM_NAME,
    Shape,
)
from tallystick.systems.jboss.read.analysis import Analysis
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.replay import EndedTransaction, PlacedRecord, RecordFile, Replay
from tallystick.systems.jboss.read.scan import OFFSET, SIZE
from tallystick.systems.jboss.read.transactions import ended_transaction, key_of, unended
from tallystick.systems.jboss.runs.analysis import goes_in_runs
from tallystick.systems.jboss.runs.chunk import chunk_of
from tallystick.systems.jboss.runs.pieces import file_rows, is_plain, valid_rows
from tallystick.systems.jboss.runs.transactions import Lives, closed_lives, lives_of

_CLOCK = Clock.NONE.value
_STATES = pa.array([State.COMMITTED.value, State.ROLLED_BACK.value], pa.string())
_TYPES = pa.array(["COMMIT", "ROLLBACK"], pa.string())


@dataclass(frozen=True, slots=True)
class Closed:
    """Transactions that begin and end in one part of a file, by their ends, in columns.

    Attributes:
        numbers: the transactions.
        ends: the offsets of their ends.
        rolled_back: whether these are rollbacks.
        counts: how many records each has.
        sizes: how many bytes.
        xids: format id, gtrid and bqual of each, as Arrow arrays.
    """

    numbers: Any
    ends: Any
    rolled_back: Any
    counts: Any
    sizes: Any
    xids: tuple[pa.Array, pa.Array, pa.Array]

    def batch(self, log: str, path: str) -> pa.RecordBatch:
        """Return them as rows of the log of that name, in the file of that path.

        The keys are their numbers.
        """
        count = len(self.numbers)
        files, codes = repeated(path, count), pa.array(self.rolled_back.astype(np.int8))
        columns = whole_transactions(SYSTEM_NAME, log, Clock.NONE, count) | {
            "key": pa.array(self.numbers).cast(pa.string()),
            "state": _STATES.take(codes),
            "transaction": pa.array(self.numbers),
            "records": pa.array(self.counts),
            "bytes": pa.array(self.sizes),
            "files": one_each(files),
            "evidence_file": files,
            "evidence_offset": pa.array(self.ends),
            "evidence_type": _TYPES.take(codes),
            **dict(zip(("format_id", "gtrid", "bqual"), self.xids, strict=True)),
        }
        return plain(table_batch(TRANSACTIONS, columns, count), TRANSACTIONS)


def closed_in(shape: Shape, data: memoryview, lives: Lives, fitting: Any) -> Closed | None:
    """Return the transactions of some lives, all of them regular; None if there is none.

    ``shape`` and ``data`` are those of the file; ``fitting`` tells which lives they are.
    """
    chosen = np.flatnonzero(fitting)
    if not len(chosen):
        return None
    # Lives stand by number; transactions are given in the order of their ends.
    chosen = chosen[np.argsort(lives.places[lives.lasts[chosen]])]
    ends = lives.ours.at(lives.lasts[chosen])
    return Closed(
        ends.transactions,
        # A view would keep the rows of the whole file in memory until the last one was read.
        ends.rows[:, OFFSET].copy(),
        ends.kinds == ROLLBACK,
        (lives.lasts - lives.starts + 1)[chosen],
        lives.sums(lives.ours.rows[:, SIZE])[chosen],
        xids_of(shape, data, lives.ours.at(lives.prepares[chosen])),
    )


@dataclass(frozen=True, slots=True)
class _FileEnds:
    """The transactions that end in one file: those in columns, and the others."""

    path: str
    closed: Closed | None
    replayed: list[EndedTransaction]

    def ordered(self) -> tuple[Any, Any]:
        """Return the numbers in the order of their ends, and the places in that order.

        They count the closed ones first.
        """
        others = np.array([one.open.transaction for one in self.replayed], np.int64)
        ends = np.array([one.end.item.offset for one in self.replayed], np.int64)
        if self.closed is not None:
            others = np.concatenate((self.closed.numbers, others))
            ends = np.concatenate((self.closed.ends, ends))
        places = np.argsort(ends)
        return others[places], places

    def batches(self, log: str, analysis: Analysis) -> Iterator[pa.RecordBatch]:
        """Yield the closed ones, then the others; the keys are their numbers."""
        if self.closed is not None:
            yield self.closed.batch(log, self.path)
        seen = Counter[int]()
        ended = (ended_transaction(log, analysis, one, seen) for one in self.replayed)
        yield from batches_of_transactions(ended, _CLOCK)


def transactions_in_columns(
    journal: JournalFiles, log: str, analysis_of: Callable[[], Analysis]
) -> TransactionColumns | None:
    """Read the transactions of a journal of the log of that name.

    Args:
        journal: its files.
        log: its name.
        analysis_of: returns the analysis of the journal; it is asked only where records are damaged
            or heuristic outcomes.

    Returns:
        None where the loader drops records, and of journals that do not go in runs.
    """
    if not goes_in_runs(journal):
        return None
    with suppress(_DroppedError):
        return TransactionColumns(journal, log, analysis_of)
    return None


class _DroppedError(Exception):
    """The journal's own loader drops records."""


class TransactionColumns:
    """The transactions of a journal; parameters as of `transactions_in_columns`."""

    def __init__(
        self, journal: JournalFiles, log: str, analysis_of: Callable[[], Analysis]
    ) -> None:
        self._log, self._analysis_of = log, analysis_of
        self._replay = Replay(journal.generation.shape, ())
        self._heuristics = False
        self._known: Analysis | None = None
        """The analysis, from the first file on that holds more than whole records and fill."""
        self._files = [
            self._file(journal.shape(file), order, file)
            for order, file in enumerate(journal.ordered())
        ]

    def _file(self, shape: Shape, order: int, file: JournalFile) -> _FileEnds:
        data, rows = file.data(), file_rows(file, shape)
        if self._known is None and not is_plain(rows, data, shape, file.stamp):
            self._known = self._analysis_of()
            if self._known.dropped:
                raise _DroppedError
        rows = valid_rows(rows)
        records = chunk_of(shape, data, rows)
        heuristic = (records.kinds == ADD) & (records.counts == HEURISTIC_TYPE)
        self._heuristics |= bool(heuristic.any())
        if (lives := lives_of(records)) is None:
            return _FileEnds(file.path, None, [])
        damage = () if self._known is None else self._known.damage
        odd = {one.transaction for one in damage if one.transaction is not None}
        fitting = closed_lives(lives, self._replay.open, odd)
        others = lives.others(fitting, len(rows))
        replayed, where = [], RecordFile(file, shape, order, file.stamp)
        for fields in records.at(others).fields():
            _, ended = self._replay.feed(PlacedRecord(*fields, where))
            if ended is not None:
                replayed.append(ended)
        return _FileEnds(file.path, closed_in(shape, data, lives, fitting), replayed)

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the transactions as batches of at most ``rows`` rows."""
        ordered = [one.ordered() for one in self._files]
        every = np.concatenate([np.empty(0, np.int64), *(one for one, _ in ordered)])
        yield from rebatched(self._ended(ordered, _times_before(every)), rows)
        yield from batches_of_transactions(self._unended(every), _CLOCK, rows)

    def _ended(self, ordered: list[tuple[Any, Any]], again: Any) -> Iterator[pa.RecordBatch]:
        """Yield the transactions with an end, file by file."""
        done, analysis = 0, self._known or Analysis([], [])
        for file, (found, places) in zip(self._files, ordered, strict=True):
            if len(found):
                table = pa.Table.from_batches(list(file.batches(self._log, analysis)))
                keys = _keys(found, again[done : done + len(found)])
                yield from _with_keys(table, places, keys).to_batches()
            done += len(found)

    def _unended(self, ended: Any) -> Iterator[Transaction]:
        opened = self._replay.open
        if (analysis := self._analysis_of() if self._heuristics else self._known) is None:
            analysis = Analysis([], [], open=list(opened.values()))
        seen = Counter(ended[among(ended, opened)].tolist())
        return unended(self._log, analysis, seen)


def _times_before(found: Any) -> Any:
    """Return how often each number stands earlier in the array."""
    places = np.argsort(found, kind="stable")
    times = np.empty(len(found), np.int64)
    # Put back into the order of ``found``.
    times[places] = ordinals(found[places])
    return times


def _keys(found: Any, again: Any) -> pa.Array:
    """Return the keys of transactions, as `key_of` gives them; ``again`` as in `_times_before`."""
    if not again.any():
        return pa.array(found).cast(pa.string())
    pairs = zip(found.tolist(), again.tolist(), strict=True)
    keys = (key_of(Counter({number: times}), number) for number, times in pairs)
    return pa.array(list(keys), pa.string())


def _with_keys(table: pa.Table, places: Any, keys: pa.Array) -> pa.Table:
    """Return the rows at some places, in that order, with other keys."""
    if (places[1:] < places[:-1]).any():
        table = table.take(pa.array(places))
    return table.set_column(TRANSACTIONS.get_field_index("key"), "key", keys)
