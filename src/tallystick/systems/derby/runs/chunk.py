"""Plain records that follow each other in one file, as columns, and the runs that they make.

In: log files that are not encrypted. Out: `Chunk`s of whole records, whose groups have the checksum
that stands before them. At the first record that is not so a run ends.
Import this module only where it pays: it loads NumPy and the compiler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.arrow.byte_kernels import Bytes
from tallystick.errors import LogFormatError
from tallystick.records import Outcome, Xid
from tallystick.storage.crc import crc32
from tallystick.storage.mapped import NEAR, let_go
from tallystick.systems.derby.format import layout
from tallystick.systems.derby.format.compressed_numbers import Cursor
from tallystick.systems.derby.format.operations import (
    CHECKPOINT,
    OPERATIONS,
    keeps_house,
)
from tallystick.systems.derby.format.record_body import Body, decode_body
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.scan import DROPPED, LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.runs import walk

ROWS = 1 << 14
"""Most rows of a chunk."""
Column = NDArray[np.int64]
_CHANGING = np.ones(max(OPERATIONS) + 1, np.bool_)
"""By operation; of container changes, which have bodies, the fields decide."""
_CHANGING[[one for one in OPERATIONS if keeps_house(one, {"operation": 0})]] = False
_FIRST, _ENDS = int(layout.Group.FIRST), int(layout.Group.LAST | layout.Group.PREPARE)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one file; ``bodies`` are those of rows that the walk leaves to the caller."""

    file: LogBytes
    data: Bytes
    columns: walk.Columns
    bodies: Mapping[int, Body]
    dropped: bool = False
    """A restart does not come to these records."""

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.columns[0])

    @property
    def instants(self) -> Column:
        """The instants of the records."""
        found: Column = self.columns[walk.OFFSET] | layout.make_instant(self.file.number, 0)
        return found

    @property
    def lengths(self) -> Column:
        """The lengths of the records, with what is around their bodies."""
        found: Column = self.columns[walk.LENGTH] + layout.LOG_RECORD_FIXED_OVERHEAD_SIZE
        return found

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.end_of(-1)

    def end_of(self, row: int) -> int:
        """Return the offset after a record."""
        offset, length = self.columns[: walk.LENGTH + 1, row].tolist()
        return int(offset + length + layout.LOG_RECORD_FIXED_OVERHEAD_SIZE)

    @property
    def checksums(self) -> Column:
        """The rows of checksum records."""
        found: Column = np.flatnonzero(self.columns[walk.OPERATION] == layout.CHECKSUM_OPERATION)
        return found

    @property
    def largest_group(self) -> int:
        """The bytes of the largest group that begins here."""
        return int(self.columns[walk.COUNT, self.checksums].max(initial=0))

    def marking(self, place: int) -> list[int]:
        """Return the rows of checkpoint records, and of the one that the control file names."""
        found = (self.columns[walk.OPERATION] == CHECKPOINT) | (self.instants == place)
        rows: list[int] = np.flatnonzero(found).tolist()
        return rows

    def ends(self, mark: int, others: Collection[int | None]) -> list[list[Any]]:
        """Return offset, length, transaction, operation and group of records that end or prepare.

        Args:
            mark: the least instant.
            others: transactions that made a checkpoint: their records are left out until the
                number begins anew. None stands for records without a transaction.
        """
        wanted = (self.columns[walk.GROUP] & _ENDS != 0) & (self.instants >= mark)
        for number in others:
            mine = self.columns[walk.TRANSACTION] == (-1 if number is None else number)
            begins = np.flatnonzero(mine & (self.columns[walk.GROUP] & _FIRST != 0))
            before = slice(begins[0] if begins.size else self.size)
            wanted[before] &= ~mine[before]
        columns = self.columns[
            [walk.OFFSET, walk.LENGTH, walk.TRANSACTION, walk.OPERATION, walk.GROUP]
        ][:, wanted]
        columns[1] += layout.LOG_RECORD_FIXED_OVERHEAD_SIZE
        rows: list[list[Any]] = columns.T.tolist()
        for row in rows:
            row[2] = row[2] if row[2] >= 0 else None
        return rows

    def names(self) -> Iterator[tuple[int, str]]:
        """Yield the transaction of each record that has one, and the name of its operation."""
        rows = self.columns[[walk.TRANSACTION, walk.OPERATION]].T.tolist()
        return ((number, OPERATIONS[one].name) for number, one in rows if number >= 0)

    def begun(self) -> list[int | None]:
        """Return the transactions of records that have the flag of a begin record."""
        begins = self.columns[walk.GROUP] & _FIRST != 0
        numbers = self.columns[walk.TRANSACTION, begins].tolist()
        return [number if number >= 0 else None for number in numbers]

    def rows(self, begin: int, end: int) -> Chunk:
        """Return some of the rows."""
        bodies = {row - begin: body for row, body in self.bodies.items() if begin <= row < end}
        return replace(self, columns=self.columns[:, begin:end], bodies=bodies)

    def where(self, wanted: NDArray[np.bool_]) -> Chunk:
        """Return the records that are wanted, as the walk has decoded them."""
        return replace(self, columns=self.columns[:, wanted], bodies={})

    def body(self, row: int) -> Body:
        """Decode the body of a record."""
        return self.bodies.get(row) or decode_body(_clear(self.file, self.columns, row))

    def range(self, row: int, scan: LogScan | None = None) -> ByteRange:
        """Return a record as a scan of all bytes finds it; without one, as a plain record."""
        offset, length = self.columns[: walk.LENGTH + 1, row].tolist()
        in_scan = scan is not None and scan.in_scan(layout.make_instant(self.file.number, offset))
        found = plain_range(self.file, offset, length, self.body(row), in_scan=in_scan)
        return replace(found, salvaged=True, reason=DROPPED) if self.dropped else found

    def changing(self) -> NDArray[np.bool_]:
        """Return of each record whether it changes rows, tables or indexes."""
        found: NDArray[np.bool_] = _CHANGING[self.columns[walk.OPERATION]]
        for row, body in self.bodies.items():
            found[row] = not keeps_house(body.operation, body.fields)
        return found

    def by_transaction(self) -> Column:
        """Return the rows that belong to transactions, those of each together and in order."""
        transaction = self.columns[walk.TRANSACTION]
        rows: Column = np.flatnonzero(transaction >= 0)
        # Stable: the records of a transaction stay in log order.
        return rows[np.argsort(transaction[rows], kind="stable")]


def plain_range(
    file: LogBytes, offset: int, length: int, body: Body, *, in_scan: bool
) -> ByteRange:
    """Return a plain record as a scan of all bytes finds it."""
    envelope = layout.Envelope(offset, length, layout.make_instant(file.number, offset), length)
    return ByteRange(
        file,
        offset,
        envelope.end - offset,
        Outcome.VALID,
        "record",
        envelope=envelope,
        body=body,
        in_scan=in_scan,
        checksum_valid=True if body.operation == layout.CHECKSUM_OPERATION else None,
        clear=bytes(file.data[envelope.body : envelope.body + length]),
    )


def _clear(file: LogBytes, columns: walk.Columns, row: int) -> bytes:
    begin = int(columns[walk.OFFSET, row]) + layout.PREFIX.size
    return bytes(file.data[begin : begin + int(columns[walk.LENGTH, row])])


def xid_at(data: memoryview, place: int) -> Xid | None:
    """Decode the global id with its XA format id at ``place``, which was found whole."""
    return Cursor(data, place - layout.FORMAT_ID_SIZE).global_id()


class PlainRun(NamedTuple):
    """What a scan has to know of a run of plain records. Places are offsets in the file.

    Attributes:
        end: offset after the last record of the run.
        records: how many there are, without checksum records.
        last, last_end: the last one of these, begin and end.
        covered: the end of the last group that begins in the run; 0 if none does.
    """

    end: int
    records: int = 0
    last: int = 0
    last_end: int = 0
    covered: int = 0

    def extended(self, chunk: Chunk) -> PlainRun:
        """Return the run with the records of the chunk, which follow it."""
        operation = chunk.columns[walk.OPERATION]
        checks = chunk.checksums
        # Checksum records are no records of the log's own scan: it ends at the last other one.
        row = chunk.size - 1
        while row >= 0 and operation[row] == layout.CHECKSUM_OPERATION:
            row -= 1
        last = self[2:4] if row < 0 else (int(chunk.columns[walk.OFFSET, row]), chunk.end_of(row))
        covered = self.covered
        if checks.size:
            covered = chunk.end_of(checks[-1]) + int(chunk.columns[walk.COUNT, checks[-1]])
        return PlainRun(chunk.end, self.records + chunk.size - checks.size, *last, covered)

    def joined(self, other: PlainRun) -> PlainRun:
        """Return the run with another one, which follows it."""
        last = (other if other.records else self)[2:4]
        records = self.records + other.records
        return PlainRun(other.end, records, *last, other.covered or self.covered)


class Runs:
    """The runs of plain records of a log that is not encrypted."""

    def __init__(self, log: LogFiles) -> None:
        self.log = log
        self._known: dict[tuple[int, int], PlainRun] = {}
        """The whole runs that were read, by file and begin."""

    def run(self, file: LogBytes, begin: int) -> PlainRun:
        """Return the run from an offset of a file on; one that was read is not read again."""
        found = self._known.get((file.number, begin))
        return self._read_run(file, begin) if found is None else found

    def know(self, file: LogBytes, begin: int, run: PlainRun) -> None:
        """Take over a whole run that was read elsewhere."""
        self._known[file.number, begin] = run

    def end(self, file: LogBytes, begin: int, limit: int) -> int:
        """Return the offset after the records of the run that begin before the limit."""
        run = self.run(file, begin)
        return run.end if run.end <= limit else self._read_run(file, begin, limit).end

    def _read_run(self, file: LogBytes, begin: int, limit: int | None = None) -> PlainRun:
        run = PlainRun(begin)
        for chunk in self.chunks(file, begin, limit):
            run = run.extended(chunk)
        return run

    def chunks(self, file: LogBytes, begin: int, limit: int | None = None) -> Iterator[Chunk]:
        """Yield the records from an offset on up to the end of the run, decoded to their ends.

        With a limit, only those that begin before that offset.
        """
        run = PlainRun(begin)
        stop = file.size if limit is None else limit
        for chunk in _chunks(file, begin, stop, ROWS, heads=False):
            run = run.extended(chunk)
            yield chunk
        if stop >= file.size and run.end > begin:
            self._known[file.number, begin] = run


def heads(file: LogBytes, begin: int, limit: int, rows: int) -> Iterator[Chunk]:
    """Yield the records between two offsets up to the end of a run, in chunks of so many rows.

    What follows the ids of a record is not decoded, so only a checksum vouches for it; ``begin`` is
    that of a group.
    """
    return _chunks(file, begin, limit, rows, heads=True)


def _chunks(file: LogBytes, begin: int, limit: int, rows: int, *, heads: bool) -> Iterator[Chunk]:
    data = np.frombuffer(file.data, np.uint8)
    # An instant is file number and offset in 64 bits: beyond, records could not be told apart.
    stop = (
        min(limit, file.size, layout.POSITION_MASK)
        if file.number <= layout.FILE_NUMBER_MAX
        else begin
    )
    count, programs = (walk.HEAD_COLUMNS, walk.HEADS) if heads else (walk.BODY_COLUMNS, walk.BODIES)
    # Where bodies are decoded they vouch for themselves; heads need a checksum before them.
    how, covered = walk.FULL, begin if heads else file.size
    while how == walk.FULL and begin < stop:
        # Pages behind are given back, or a long log would stay in memory as a whole.
        let_go(file.data, begin)
        columns = np.empty((count, rows), np.int64)
        large = np.empty((walk.LARGE_COLUMNS, rows), np.int64)
        # No further than `let_go` allows between two calls, even where the columns have room.
        found, checks, begin, covered, how = walk.walk(
            data, file.number, begin, covered, min(stop, begin + NEAR), columns, programs, large
        )
        chunk = _vouched(file, data, columns[:, :found], large[:, :checks])
        if chunk.size:
            yield chunk
        if chunk.size < found:
            return


def _vouched(file: LogBytes, data: Bytes, columns: walk.Columns, large: walk.Columns) -> Chunk:
    """Return the records before the first that the walk's caller finds to be none."""
    whole = columns.shape[1]
    for begin, end, crc, row in large.T.tolist():
        # Before any body is decoded: what a wrong checksum covers is not looked at.
        if crc32(file.data[begin:end]) != crc:
            whole = row
            break
    bodies: dict[int, Body] = {}
    for row in np.flatnonzero(columns[walk.ODD, :whole]).tolist():
        try:
            bodies[row] = decode_body(_clear(file, columns, row))
        except LogFormatError:
            whole = row
            break
    return Chunk(file, data, columns[:, :whole], bodies)
