"""The transactions of plain records: the records of each in a chunk summed up in columns.

In: chunks in log order. Out: sums, and a `TransactionCollector` that has taken them in. Only what
there is once in a transaction, and the records of checkpoints, are taken one by one; transactions
that begin and end in a chunk are just counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tallystick.arrow.neighbours import firsts, last_where, lasts_of, starts_of, sums
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.format.operations import OPERATIONS
from tallystick.systems.derby.read.catalogue import NAMING
from tallystick.systems.derby.read.transactions import (
    ABORTED,
    COMMITTED,
    LATEST,
    PREPARED,
    Numbers,
    TransactionCollector,
    ended_state,
)
from tallystick.systems.derby.runs import walk
from tallystick.systems.derby.runs.chunk import Chunk, Column, xid_at

_LAST, _PREPARE, _COMMIT = int(Group.LAST), int(Group.PREPARE), int(Group.COMMIT)


def collect(collector: TransactionCollector, chunk: Chunk) -> None:
    """Collect the transactions of a chunk."""
    begin = 0
    checkpoints = chunk.columns[walk.OPERATION] == operations.CHECKPOINT
    for row in np.flatnonzero(checkpoints).tolist():
        _collect(collector, chunk.rows(begin, row))
        collector.add(chunk.range(row))  # it may tell global ids
        begin = row + 1
    _collect(collector, chunk.rows(begin, chunk.size))


def _collect(collector: TransactionCollector, chunk: Chunk) -> None:
    """Collect the transactions of records in which no checkpoint tells global ids."""
    for boot in boots(collector.begun, chunk):
        sums = summed(boot)
        over = _are_over(sums) & (not collector.keep_all)
        _add_sums(collector, boot, sums[:, ~over])
        committed = int(np.count_nonzero(sums[END, over] & _COMMIT))
        states = {COMMITTED: committed, ABORTED: int(np.count_nonzero(over)) - committed}
        collector.add_ended(sums[NUMBER, over].tolist(), states)


def _are_over(sums: walk.Columns) -> NDArray[np.bool_]:
    """Tell which transactions begin and end here, the latest ones left out.

    The first one is left out, too: with it a boot may begin.
    """
    ends = sums[END]
    over: NDArray[np.bool_] = (sums[BEGINS] != 0) & (ends >= 0) & (ends & _LAST != 0)
    # The latest ones stay whole, as the pass without columns keeps them.
    over[:1] = over[-LATEST:] = False
    return over


def _add_sums(collector: TransactionCollector, chunk: Chunk, sums: walk.Columns) -> None:
    """Take in the records of each transaction at once, in order of their first ones."""
    path, data = chunk.file.path, chunk.file.data
    for number, place, begins, internal, *counts, end, proof, operation, xid in sums.T.tolist():
        one = collector.transaction(number, place, begins=bool(begins))
        one.add_run(path, *counts)
        if begins:
            one.internal = bool(internal)
        if xid >= 0:
            one.xid = xid_at(data, xid)
        if end >= 0:
            one.state = ended_state(end) if end & _LAST else PREPARED
        if proof >= 0:
            one.evidence, one.evidence_type = (path, proof), OPERATIONS[operation].name
        collector.forget_ended(one)


def boots(begun: Numbers, chunk: Chunk) -> Iterator[Chunk]:
    """Yield the chunk cut before each begin record of a number that has begun: a boot was between.

    ``begun`` are the numbers that began in the boot so far.
    """
    numbers = begun_numbers(chunk)
    if len({*numbers}) == len(numbers) and begun.isdisjoint(numbers):
        yield chunk
        return
    begin, seen, first = 0, set[int](), True
    for row, number in zip(np.flatnonzero(_begins(chunk)).tolist(), numbers, strict=True):
        if number in seen or (first and number in begun):
            yield chunk.rows(begin, row)
            begin, seen, first = row, set(), False
        seen.add(number)
    yield chunk.rows(begin, chunk.size)


def begun_numbers(chunk: Chunk) -> list[int]:
    """Return the numbers of the transactions that begin, in order."""
    found: list[int] = chunk.columns[walk.TRANSACTION, _begins(chunk)].tolist()
    return found


def _begins(chunk: Chunk) -> NDArray[np.bool_]:
    begins = chunk.columns[walk.OPERATION] == operations.BEGIN
    found: NDArray[np.bool_] = begins & (chunk.columns[walk.TRANSACTION] >= 0)
    return found


(
    NUMBER, FIRST, BEGINS, INTERNAL, RECORDS, BYTES, UNDONE, LAST, GROUPS, CHANGES, END, PROOF,
    PROVES, XID,
) = range(14)  # fmt: skip
"""Rows of the array that `summed` makes.

The number of the transaction, the instant of the first record, whether that is a begin record, and
of an internal transaction; records, bytes, records that undo, the instant of the last one, the bits
of all groups, whether one changes rows, tables or indexes; then, or -1: the group of the last
record that ends or prepares, offset and operation of the last begin or end record, offset of the
last global id.
"""
SUMMED = 14


def summed(chunk: Chunk) -> walk.Columns:
    """Return a column for the records of each transaction, in order of their first ones."""
    rows = chunk.by_transaction()
    if not rows.size:
        return np.empty((SUMMED, 0), np.int64)
    return _Sums(chunk, rows).columns()


class _Sums:
    """Sums over the records of each transaction; ``rows`` are those of a chunk, in that order."""

    def __init__(self, chunk: Chunk, rows: Column) -> None:
        self._chunk, self._rows = chunk, rows
        self._transaction = self._of(walk.TRANSACTION)
        self._operation = self._of(walk.OPERATION)
        self._begins = self._operation == operations.BEGIN
        # A number that begins twice within a chunk is two transactions, of two boots.
        self._starts: Column = np.flatnonzero(firsts(self._transaction) | self._begins)

    def columns(self) -> walk.Columns:
        """Return the sums, in order of first records."""
        starts, rows = self._starts, self._rows
        lasts = lasts_of(starts, rows.size)
        first, last = rows[starts], rows[lasts]
        group, xid = self._of(walk.GROUP), self._of(walk.GLOBAL_ID)
        proves = self._begins | (self._operation == operations.END)
        internal = self._chunk.columns[walk.FLAG, first] == operations.STATUS_INTERNAL
        found = np.empty((SUMMED, starts.size), np.int64)
        found[NUMBER] = self._transaction[starts]
        found[FIRST] = self._chunk.instants[first]
        found[BEGINS] = self._begins[starts]
        found[INTERNAL] = self._begins[starts] & internal
        found[RECORDS] = lasts - starts + 1
        found[BYTES] = sums(self._chunk.lengths[rows], starts)
        found[UNDONE] = sums(group & walk.COMPENSATION != 0, starts)
        found[LAST] = self._chunk.instants[last]
        found[GROUPS] = np.bitwise_or.reduceat(group, starts)
        found[CHANGES] = np.bitwise_or.reduceat(self._chunk.changing()[rows], starts)
        found[END] = self._last(group & (_LAST | _PREPARE) != 0, group)
        found[PROOF] = self._last(proves, self._of(walk.OFFSET))
        found[PROVES] = self._last(proves, self._operation)
        found[XID] = self._last(xid >= 0, xid)
        # No two first records share a row, so the sort need not be stable.
        return found[:, np.argsort(first)]

    def _of(self, column: int) -> Column:
        found: Column = self._chunk.columns[column, self._rows]
        return found

    def _last(self, wanted: NDArray[np.bool_], values: Column) -> Column:
        """Return the value of the last wanted row of each transaction, -1 if there is none."""
        return last_of(wanted, values, self._starts)


def last_of(wanted: NDArray[np.bool_], values: Column, starts: Column) -> Column:
    """Return the value of the last wanted row of each run, -1 if there is none.

    ``starts`` are the first rows of the runs, which follow each other.
    """
    last = last_where(wanted, starts)
    found: Column = np.where(last >= 0, values[last], -1)
    return found


def is_closed(chunk: Chunk) -> NDArray[np.bool_]:
    """Tell which records are of transactions that begin and end once, with all records here."""
    rows = chunk.by_transaction()
    found = np.zeros(chunk.size, np.bool_)
    if not rows.size:
        return found
    numbers = chunk.columns[walk.TRANSACTION, rows]
    starts = starts_of(numbers)
    lasts = lasts_of(starts, rows.size)
    begins = chunk.columns[walk.OPERATION, rows] == operations.BEGIN
    ends = chunk.columns[walk.GROUP, rows] & _LAST != 0
    closed = begins[starts] & (sums(begins, starts) == 1) & ends[lasts] & (sums(ends, starts) == 1)
    found[rows] = np.repeat(closed, lasts - starts + 1)
    return found


def names_tables(chunk: Chunk) -> bool:
    """Return whether records change the catalogue, and with it perhaps names of tables."""
    on = np.isin(chunk.columns[walk.CONTAINER], NAMING) & (chunk.columns[walk.SEGMENT] == 0)
    return bool(on.any())
