"""Transactions and changes of a split of a log, and the joining of what the splits leave open.

In: a split of a file, in runs of plain records. Out: rows of the transactions whose records are
all in one chunk of it; for the others, their records as columns. Joining these gives the rest of
the rows, if the splits together prove that the whole log is plain, and of one boot: the number of
the boot is a part of a transaction's key. So does what a boot redoes, and what else a verdict asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tallystick.records import Outcome
from tallystick.storage.zeros import is_zero
from tallystick.systems.derby.columns.changes import batches_of_committed
from tallystick.systems.derby.columns.transactions import TransactionColumns
from tallystick.systems.derby.engine.analysis import LogAnalysis
from tallystick.systems.derby.engine.recovery import recover
from tallystick.systems.derby.engine.redo_kernels import NOTED
from tallystick.systems.derby.engine.redo_of_parts import Part, RedoOfParts, RedoOfSplit
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import HEADER_SIZE
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.names import Names
from tallystick.systems.derby.runs import walk
from tallystick.systems.derby.runs.changes import ChangeFeed
from tallystick.systems.derby.runs.chunk import Chunk, Column, PlainRun, Runs
from tallystick.systems.derby.runs.pieces import Chain
from tallystick.systems.derby.runs.transactions import collect, is_closed, names_tables
from tallystick.systems.protocol import NotClosedInPartsError, Split
from tallystick.systems.rests import items, longs, packed

Batches = Iterator[tuple[str, pa.RecordBatch]]


class Rest(NamedTuple):
    """What a split leaves open.

    Attributes:
        number: of the file.
        begin, end: where its first record begins, and its last one ends.
        closed: the transactions that it closed.
        left: records of the others.
        part: what all of its records tell of redo.
    """

    number: int
    begin: int
    end: int
    closed: Column
    left: walk.Columns
    part: Part

    @classmethod
    def built(cls, value: Any) -> Rest:
        """Return the rest whose value was packed, for `unpacked`."""
        number, begin, end, closed, left, part = items(value, int, int, int, bytes, bytes, list)
        table = longs(left).reshape(walk.BODY_COLUMNS, -1)
        # Kernels take writable arrays.
        return cls(number, begin, end, longs(closed), table.copy(), Part.built(part))

    def packed(self) -> bytes:
        """Return it as bytes."""
        return packed(self)

    def chunk(self, file: LogBytes) -> Chunk:
        """Return the records that are left, of their file."""
        return Chunk(file, np.frombuffer(file.data, np.uint8), self.left, {})


class ClosingSplit:
    """Closes what begins and ends in a split, which is read once.

    ``names`` are those of tables if the log changes none; if it does, the whole log has to be read.
    ``recovery`` tells where redo begins.
    """

    def __init__(
        self, runs: Runs, name: str, names: Names, split: Split, rows: int, recovery: Recovery
    ) -> None:
        self._runs, self._log, self._name, self._rows = runs, runs.log, name, rows
        self._names = names
        self._file = next(one for one in runs.log.files.values() if one.path == split.file)
        self._begin, self._stop = max(split.begin, HEADER_SIZE), split.end
        self._end = self._begin
        self._redo = RedoOfSplit(runs, recovery, self._begin)
        self._plain = True
        self._closed: list[Column] = []
        self._left: list[walk.Columns] = []

    def batches(self) -> Batches:
        """Yield transactions and changes by table."""
        for chunk in self._runs.chunks(self._file, self._begin, self._stop):
            self._end = chunk.end
            self._plain = self._plain and not _names_branches(chunk) and not names_tables(chunk)
            closed = is_closed(chunk) & ~_with_containers(chunk)
            mine = chunk.where(closed)
            self._redo.add(chunk, mine)
            numbers = mine.columns[walk.TRANSACTION]
            self._closed.append(np.unique(numbers))
            left = ~closed & (chunk.columns[walk.TRANSACTION] >= 0)
            self._left.append(chunk.columns[:, left])
            done = TransactionColumns(self._log, self._name)
            done.add(mine)
            yield from _transactions(done, self._rows)
            yield from _changes(self._log, ChangeFeed(), mine, self._name, self._names, self._rows)

    def rest(self) -> bytes | None:
        """Return the packed `Rest`; None if the whole log has to be read."""
        ended = self._end >= self._stop or is_zero(self._file.data, self._end, self._file.size)
        part = self._redo.part()
        if not ended or not self._plain or part is None:
            return None
        closed = np.concatenate([np.empty(0, np.int64), *self._closed])
        none = np.empty((walk.BODY_COLUMNS, 0), np.int64)
        left = np.concatenate([none, *self._left], axis=1)
        return Rest(self._file.number, self._begin, self._end, closed, left, part).packed()


def join(log: LogFiles, name: str, names: Names, rests: Sequence[Rest], rows: int) -> Batches:
    """Yield the transactions and changes that no split closed alone, by table.

    Raises:
        NotClosedInPartsError: the whole log has to be read.
    """
    _require_whole(log, rests)
    transactions, feed = TransactionColumns(log, name), ChangeFeed()
    for rest in rests:
        file = log.files[rest.number]
        if rest.left.size:
            chunk = rest.chunk(file)
            transactions.add(chunk)
            yield from _changes(log, feed, chunk, name, names, rows)
    yield from _transactions(transactions, rows)


class Known(NamedTuple):
    """What the splits of a log tell of it."""

    runs: Runs
    recovery: Recovery
    analysis: LogAnalysis


def known_of(log: LogFiles, settings: Mapping[str, str], rests: Sequence[Rest]) -> Known:
    """Return what a pass over a log finds, without its transactions that have ended.

    Raises:
        NotClosedInPartsError: the whole log has to be read.
    """
    _require_whole(log, rests)
    runs, parts = Runs(log), [(rest.number, rest.part) for rest in rests]
    for number, file in log.files.items():
        run = PlainRun(HEADER_SIZE)
        for part in (one for of, one in parts if of == number):
            run = run.joined(part.run)
        runs.know(file, HEADER_SIZE, run)
    left = [rest.chunk(log.files[rest.number]) for rest in rests]
    recovery = recover(log, settings, redo=partial(RedoOfParts, runs, parts, left))
    if recovery.boots is False or recovery.new_log:
        raise NotClosedInPartsError("a boot does not use the log")
    checkpoint = recovery.checkpoint, recovery.checkpointing
    analysis = LogAnalysis(recovery.redo_mark, checkpoint)
    analysis.run_count.in_runs = sum(part.size for _, part in parts)
    analysis.records[Outcome.VALID.value] = analysis.run_count.in_runs
    for (_, part), chunk in zip(parts, left, strict=True):
        analysis.checkpoints += part.checkpoints.tolist()
        collect(analysis.transactions, chunk)
    if analysis.transactions.again:
        raise NotClosedInPartsError("a transaction goes on after its end")
    return Known(runs, recovery, analysis)


def _require_whole(log: LogFiles, rests: Sequence[Rest]) -> None:
    """Check that the splits are a plain log of one boot.

    Raises:
        NotClosedInPartsError: they are not.
    """
    _require_chain(log, rests)
    _require_one_boot(rests)


def _require_chain(log: LogFiles, rests: Sequence[Rest]) -> None:
    """Check that the splits are the whole log, and that a scan of the engine reaches its end."""
    chain = Chain()
    for number, file in log.files.items():
        position = HEADER_SIZE
        for rest in (one for one in rests if one.number == number):
            position = rest.end if rest.begin == position else -1
        whole = position >= 0 and is_zero(file.data, position, file.size)
        if not whole or not chain.goes_on(file):
            raise NotClosedInPartsError("a file is not plainly whole", file=file.path)
        chain.add(file, position)


def _require_one_boot(rests: Sequence[Rest]) -> None:
    """Check that no number begins twice, or goes on after its transaction was closed."""
    closed = np.concatenate([np.empty(0, np.int64), *(rest.closed for rest in rests)])
    none = np.empty((walk.BODY_COLUMNS, 0), np.int64)
    left = np.concatenate([none, *(rest.left for rest in rests)], axis=1)
    numbers = left[walk.TRANSACTION]
    begun = np.sort(np.append(closed, numbers[left[walk.OPERATION] == operations.BEGIN]))
    if (begun[1:] == begun[:-1]).any() or np.isin(closed, numbers).any():
        raise NotClosedInPartsError("the number of a transaction is used again")


def _with_containers(chunk: Chunk) -> NDArray[np.bool_]:
    """Tell which records are of transactions that a boot follows by their containers."""
    numbers, noted = chunk.columns[walk.TRANSACTION], np.isin(chunk.columns[walk.OPERATION], NOTED)
    return np.isin(numbers, numbers[noted])


def _names_branches(chunk: Chunk) -> bool:
    """Return whether a checkpoint tells global ids, which later records may need."""
    tables = (body.fields.get("transactionTable") or () for body in chunk.bodies.values())
    return any(one["gid"] is not None for table in tables for one in table)


def _transactions(found: TransactionColumns, rows: int) -> Batches:
    for batch in found.batches(rows):
        yield "transactions", batch


def _changes(
    log: LogFiles, feed: ChangeFeed, chunk: Chunk, name: str, names: Names, rows: int
) -> Batches:
    if chunk.size:
        for batch in batches_of_committed(log, name, feed.take(chunk), names, rows):
            yield "changes", batch
