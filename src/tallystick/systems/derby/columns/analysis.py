"""Analysis of runs of plain records: their transactions, put together in columns.

In: the scan of a file. Out: the `LogAnalysis` with the records of its run. Only what there is once
in a transaction, and the records of checkpoints, are taken one by one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tallystick.systems.derby.columns import kernels
from tallystick.systems.derby.columns.body_kernels import COUNT, FLAG
from tallystick.systems.derby.columns.plain import Chunk, Column, RunReader, xid_at
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import CHECKSUM_OPERATION, HEADER_SIZE, Group
from tallystick.systems.derby.format.operations import OPERATIONS
from tallystick.systems.derby.read.analysis import LogAnalysis
from tallystick.systems.derby.read.files import LogBytes
from tallystick.systems.derby.read.plain import RunCount
from tallystick.systems.derby.read.scan import FileScan
from tallystick.systems.derby.read.transactions import (
    PREPARED,
    TransactionCollector,
    ended_state,
)

_FIRST, _LAST, _PREPARE = int(Group.FIRST), int(Group.LAST), int(Group.PREPARE)
_COMPENSATION = int(Group.COMPENSATION)


def take_run(reader: RunReader, found: LogAnalysis, scan: FileScan) -> int:
    """Take the run that a file begins with into the analysis; return the offset after it."""
    end = HEADER_SIZE
    for chunk in reader.chunks(scan.file, HEADER_SIZE, scan.believed_until()):
        _take(found, scan, chunk)
        end = chunk.end
    return end


def count_run(reader: RunReader, collector: TransactionCollector, file: LogBytes) -> RunCount:
    """Collect the transactions of the run that a file begins with; return what is in it."""
    records = groups = largest = 0
    end = HEADER_SIZE
    for chunk in reader.chunks(file, HEADER_SIZE):
        begin = 0
        for row in np.flatnonzero(_is_checkpoint(chunk)).tolist():
            collect(collector, chunk.rows(begin, row))
            collector.add(chunk.range(row, in_scan=False))
            begin = row + 1
        collect(collector, chunk.rows(begin, chunk.size))
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
        found.add(chunk.range(row, in_scan=in_scan))
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
    collect(found.collector, chunk)


def collect(collector: TransactionCollector, chunk: Chunk) -> None:
    """Take the records of a chunk in which no checkpoint tells global ids."""
    for boot in _boots(collector, chunk):
        _collect(collector, boot)


def _boots(collector: TransactionCollector, chunk: Chunk) -> Iterator[Chunk]:
    """Yield the rows in parts: a number that begins again is in the first row of its part."""
    transaction = chunk.columns[kernels.TRANSACTION]
    begins = (chunk.columns[kernels.OPERATION] == operations.BEGIN) & (transaction >= 0)
    numbers = transaction[begins].tolist()
    seen = set(numbers)
    if len(seen) == len(numbers) and seen.isdisjoint(collector.begun):
        yield chunk
        return
    begin, seen = 0, set(collector.begun)
    for row, number in zip(np.flatnonzero(begins).tolist(), numbers, strict=True):
        if number in seen:
            yield chunk.rows(begin, row)
            begin, seen = row, set()
        seen.add(number)
    yield chunk.rows(begin, chunk.size)


def _collect(collector: TransactionCollector, chunk: Chunk) -> None:
    """Take the records of each transaction at once, in order of their first ones."""
    rows = chunk.by_transaction()
    if not rows.size:
        return
    path, data = chunk.file.path, chunk.file.data
    for number, place, begins, internal, *counts, end, proof, operation, xid in _Runs(chunk, rows):
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


class _Runs:
    """The records of each transaction as one row, in order of their first ones.

    A row is: number, instant of the first record, whether that is a begin record, whether of an
    internal transaction, records, bytes, records that undo, instant of the last one, the bits of
    all groups; then, or -1: the group of the last one that ends or prepares, place and operation of
    the last begin or end record, offset of the last global id.
    """

    def __init__(self, chunk: Chunk, rows: Column) -> None:
        self._columns, self._rows = chunk.columns, rows
        transaction = self._of(kernels.TRANSACTION)
        operation = self._of(kernels.OPERATION)
        begins = operation == operations.BEGIN
        starts = begins.copy()
        starts[0] = True
        starts[1:] |= transaction[1:] != transaction[:-1]
        self._starts: Column = np.flatnonzero(starts)
        ends = np.append(self._starts[1:], rows.size)
        group = self._of(kernels.GROUP)
        first, last = rows[self._starts], rows[ends - 1]
        instants, lengths = chunk.instants, chunk.lengths
        proves = begins | (operation == operations.END)
        internal = self._columns[FLAG, first] == operations.STATUS_INTERNAL
        columns = (
            transaction[self._starts],
            instants[first],
            begins[self._starts],
            begins[self._starts] & internal,
            ends - self._starts,
            np.add.reduceat(lengths[rows], self._starts),
            np.add.reduceat((group & _COMPENSATION != 0).astype(np.int64), self._starts),
            instants[last],
            np.bitwise_or.reduceat(group, self._starts),
            self._last(group & (_LAST | _PREPARE) != 0, group),
            self._last(proves, self._of(kernels.OFFSET)),
            self._last(proves, operation),
            self._last(self._of(kernels.GLOBAL_ID) >= 0, self._of(kernels.GLOBAL_ID)),
        )
        order = np.argsort(first)
        self._lists = [column[order].tolist() for column in columns]

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return zip(*self._lists, strict=True)

    def _of(self, column: int) -> Column:
        found: Column = self._columns[column, self._rows]
        return found

    def _last(self, wanted: NDArray[np.bool_], values: Column) -> Column:
        """Return the value of the last wanted row of each transaction, -1 if there is none."""
        index = np.where(wanted, np.arange(wanted.size), -1)
        last = np.maximum.reduceat(index, self._starts)
        found: Column = np.where(last >= 0, values[last], -1)
        return found
