"""The runs of plain records of a log, for every judge of it, with their transactions in columns.

In: log files that are not encrypted. Out: what recovery, analysis and spans take of their runs.
Only what there is once in a transaction, and the records of checkpoints, are taken one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tallystick.systems.derby.columns import kernels
from tallystick.systems.derby.columns.body_kernels import COUNT, FLAG
from tallystick.systems.derby.columns.change_feed import after_runs, open_at, ranges_on
from tallystick.systems.derby.columns.kernels import Columns
from tallystick.systems.derby.columns.plain import Chunk, Column, RunReader, xid_at
from tallystick.systems.derby.columns.redo import CompiledRedo
from tallystick.systems.derby.engine.page_versions import PageVersions
from tallystick.systems.derby.engine.recovery import Recovery
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import CHECKSUM_OPERATION, HEADER_SIZE, Group
from tallystick.systems.derby.format.operations import OPERATIONS
from tallystick.systems.derby.read.analysis import LogAnalysis
from tallystick.systems.derby.read.changes import Pending
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.plain import RunCount
from tallystick.systems.derby.read.scan import FileScan, LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.read.transactions import (
    PREPARED,
    TransactionCollector,
    ended_state,
)

_FIRST, _LAST, _PREPARE = int(Group.FIRST), int(Group.LAST), int(Group.PREPARE)
_COMPENSATION = int(Group.COMPENSATION)


class CompiledRuns(RunReader):
    """Reads the runs of one log."""

    def __init__(self, log: LogFiles) -> None:
        super().__init__()
        self._log = log

    def redo(self, result: Recovery, versions: PageVersions) -> CompiledRedo:
        """Return what redoes runs."""
        return CompiledRedo(self._log, self, result, versions)

    def count(self, collector: TransactionCollector, file: LogBytes) -> RunCount:
        """Collect the transactions of the run that a file begins with; return what is in it."""
        return count_run(self, collector, file)

    def left(self, scan: LogScan) -> tuple[Pending, Iterator[ByteRange]]:
        """Return what is open after the runs that a log begins with, and all ranges after them."""
        return after_runs(self, scan)

    def open_at(self, begin: int, end: int, numbers: Collection[int]) -> tuple[Pending, int]:
        """Return what transactions changed between two instants, and how far that was read."""
        return open_at(self, self._log, begin, end, numbers)

    def ranges_on(
        self, scan: LogScan, containers: Collection[int], commits: Collection[int]
    ) -> Iterator[ByteRange]:
        """Yield at least the ranges that tell of changes of containers, and of these commits."""
        return ranges_on(self, scan, containers, commits)

    def take(self, found: LogAnalysis, scan: FileScan) -> int:
        """Take the run that a file begins with into the analysis; return the offset after it."""
        return take_run(self, found, scan)


def take_run(reader: RunReader, found: LogAnalysis, scan: FileScan) -> int:
    """Take the run that a file begins with into the analysis; return the offset after it."""
    end = HEADER_SIZE
    for chunk in reader.chunks(scan.file, HEADER_SIZE, scan.believed_until()):
        _take(found, scan, chunk)
        end = chunk.end
    found.collect_later(partial(_collect_run, reader, scan.file, end))
    return end


def _collect_run(
    reader: RunReader, file: LogBytes, end: int, collector: TransactionCollector
) -> None:
    """Collect the transactions of the run that a file begins with, up to an offset."""
    for chunk in reader.chunks(file, HEADER_SIZE, end):
        _collect_chunk(collector, chunk)


def _collect_chunk(collector: TransactionCollector, chunk: Chunk) -> None:
    begin = 0
    for row in np.flatnonzero(_is_checkpoint(chunk)).tolist():
        collect(collector, chunk.rows(begin, row))
        collector.add(chunk.range(row, in_scan=False))
        begin = row + 1
    collect(collector, chunk.rows(begin, chunk.size))


def count_run(reader: RunReader, collector: TransactionCollector, file: LogBytes) -> RunCount:
    """Collect the transactions of the run that a file begins with; return what is in it."""
    records = groups = largest = 0
    end = HEADER_SIZE
    for chunk in reader.chunks(file, HEADER_SIZE):
        _collect_chunk(collector, chunk)
        covered = chunk.columns[COUNT, _is_checksum(chunk)]
        records, groups, end = records + chunk.size, groups + covered.size, chunk.end
        largest = int(covered.max(initial=largest))
    return RunCount(end, records, groups, largest)


def _is_checkpoint(chunk: Chunk) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = chunk.columns[kernels.OPERATION] == operations.CHECKPOINT
    return found


def _is_checksum(chunk: Chunk) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = chunk.columns[kernels.OPERATION] == CHECKSUM_OPERATION
    return found


def _take(found: LogAnalysis, scan: FileScan, chunk: Chunk) -> None:
    """Take a chunk; its checkpoints, and what is at the place of the known one, by themselves."""
    alone = _is_checkpoint(chunk)
    alone |= chunk.instants == found.checkpoint[0]
    begin = 0
    for row in np.flatnonzero(alone).tolist():
        _take_plain(found, chunk.rows(begin, row))
        in_scan = scan.in_scan(int(chunk.columns[kernels.OFFSET, row]))
        found.add(chunk.range(row, in_scan=in_scan), collected=True)
        begin = row + 1
    _take_plain(found, chunk.rows(begin, chunk.size))


def _take_plain(found: LogAnalysis, chunk: Chunk) -> None:
    if not chunk.size:
        return
    begun: set[int | None] = set()
    if found.checkpointing:
        begins = chunk.columns[kernels.GROUP] & _FIRST != 0
        numbers = chunk.columns[kernels.TRANSACTION, begins].tolist()
        begun = {number if number >= 0 else None for number in numbers}
    found.add_valid(chunk.size, begun)


def collect(collector: TransactionCollector, chunk: Chunk) -> None:
    """Take the records of a chunk in which no checkpoint tells global ids."""
    for boot in boots(collector.begun, chunk):
        _collect(collector, boot)


def boots(begun: Set[int], chunk: Chunk) -> Iterator[Chunk]:
    """Yield the rows in parts: a number that begins again is in the first row of its part.

    ``begun`` are the numbers that began in the boot so far.
    """
    numbers = begun_numbers(chunk)
    seen = set(numbers)
    if len(seen) == len(numbers) and seen.isdisjoint(begun):
        yield chunk
        return
    begin, seen = 0, set(begun)
    begins = _begins(chunk)
    for row, number in zip(np.flatnonzero(begins).tolist(), numbers, strict=True):
        if number in seen:
            yield chunk.rows(begin, row)
            begin, seen = row, set()
        seen.add(number)
    yield chunk.rows(begin, chunk.size)


def begun_numbers(chunk: Chunk) -> list[int]:
    """Return the numbers of the transactions that begin, in order."""
    found: list[int] = chunk.columns[kernels.TRANSACTION, _begins(chunk)].tolist()
    return found


def _begins(chunk: Chunk) -> NDArray[np.bool_]:
    begins = chunk.columns[kernels.OPERATION] == operations.BEGIN
    found: NDArray[np.bool_] = begins & (chunk.columns[kernels.TRANSACTION] >= 0)
    return found


def _collect(collector: TransactionCollector, chunk: Chunk) -> None:
    """Take the records of each transaction at once, in order of their first ones."""
    path, data = chunk.file.path, chunk.file.data
    for number, place, begins, internal, *counts, end, proof, operation, xid in summed(
        chunk
    ).T.tolist():
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


NUMBER, FIRST, BEGINS, INTERNAL, RECORDS, BYTES, UNDONE, LAST, GROUPS, END, PROOF, PROVES, XID = (
    range(13)
)
"""Rows of the array that `summed` makes.

The number of the transaction, the instant of the first record, whether that is a begin record, and
of an internal transaction; records, bytes, records that undo, the instant of the last one, the bits
of all groups; then, or -1: the group of the last record that ends or prepares, offset and operation
of the last begin or end record, offset of the last global id.
"""
SUMMED = 13


def summed(chunk: Chunk) -> Columns:
    """Return a column for the records of each transaction, in order of their first ones."""
    rows = chunk.by_transaction()
    if not rows.size:
        return np.empty((SUMMED, 0), np.int64)
    return _Sums(chunk, rows).columns()


class _Sums:
    """Sums over the records of each transaction; ``rows`` are those of a chunk, in that order."""

    def __init__(self, chunk: Chunk, rows: Column) -> None:
        self._chunk, self._rows = chunk, rows
        self._transaction = self._of(kernels.TRANSACTION)
        self._operation = self._of(kernels.OPERATION)
        self._begins = self._operation == operations.BEGIN
        starts = self._begins.copy()
        starts[0] = True
        starts[1:] |= self._transaction[1:] != self._transaction[:-1]
        self._starts: Column = np.flatnonzero(starts)

    def columns(self) -> Columns:
        """Return the sums, in order of first records."""
        starts, rows = self._starts, self._rows
        ends = np.append(starts[1:], rows.size)
        first, last = rows[starts], rows[ends - 1]
        group, xid = self._of(kernels.GROUP), self._of(kernels.GLOBAL_ID)
        proves = self._begins | (self._operation == operations.END)
        internal = self._chunk.columns[FLAG, first] == operations.STATUS_INTERNAL
        found = np.empty((SUMMED, starts.size), np.int64)
        found[NUMBER] = self._transaction[starts]
        found[FIRST] = self._chunk.instants[first]
        found[BEGINS] = self._begins[starts]
        found[INTERNAL] = self._begins[starts] & internal
        found[RECORDS] = ends - starts
        found[BYTES] = np.add.reduceat(self._chunk.lengths[rows], starts)
        found[UNDONE] = np.add.reduceat((group & _COMPENSATION != 0).astype(np.int64), starts)
        found[LAST] = self._chunk.instants[last]
        found[GROUPS] = np.bitwise_or.reduceat(group, starts)
        found[END] = self._last(group & (_LAST | _PREPARE) != 0, group)
        found[PROOF] = self._last(proves, self._of(kernels.OFFSET))
        found[PROVES] = self._last(proves, self._operation)
        found[XID] = self._last(xid >= 0, xid)
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
    index = np.where(wanted, np.arange(wanted.size), -1)
    last = np.maximum.reduceat(index, starts)
    found: Column = np.where(last >= 0, values[last], -1)
    return found
