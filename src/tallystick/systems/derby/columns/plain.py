"""Runs of plain records as columns of numbers: what the judges of a log take instead of objects.

In: log files that are not encrypted. Out: `Chunk`s of whole records, decoded to their end, whose
groups have the checksum that stands before them. At the first record that is not so a run ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallystick.arrow.byte_kernels import Bytes
from tallystick.errors import LogFormatError
from tallystick.records import Outcome, Xid
from tallystick.storage.crc import crc32
from tallystick.systems.derby.columns import body_kernels, kernels
from tallystick.systems.derby.columns.kernels import Columns
from tallystick.systems.derby.format.compressed_numbers import Cursor
from tallystick.systems.derby.format.layout import (
    CHECKSUM_OPERATION,
    FILE_NUMBER_MAX,
    FORMAT_ID_SIZE,
    LOG_RECORD_FIXED_OVERHEAD_SIZE,
    POSITION_MASK,
    PREFIX,
    Envelope,
    make_instant,
)
from tallystick.systems.derby.format.record_body import Body, decode_body
from tallystick.systems.derby.read.files import LogBytes
from tallystick.systems.derby.read.plain import PlainRun
from tallystick.systems.derby.read.spans import ByteRange

ROWS = 1 << 15
"""Most rows of a chunk."""
Column = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one file; ``bodies`` are those of odd rows."""

    file: LogBytes
    data: Bytes
    columns: Columns
    bodies: Mapping[int, Body]

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.columns[0])

    @property
    def instants(self) -> Column:
        """The instants of the records."""
        found: Column = self.columns[kernels.OFFSET] | make_instant(self.file.number, 0)
        return found

    @property
    def lengths(self) -> Column:
        """The lengths of the records, with what is around their bodies."""
        found: Column = self.columns[kernels.LENGTH] + LOG_RECORD_FIXED_OVERHEAD_SIZE
        return found

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return int(self.columns[kernels.OFFSET, -1] + self.lengths[-1])

    def rows(self, begin: int, end: int) -> Chunk:
        """Return some of the rows."""
        bodies = {row - begin: body for row, body in self.bodies.items() if begin <= row < end}
        return Chunk(self.file, self.data, self.columns[:, begin:end], bodies)

    def body(self, row: int) -> Body:
        """Decode the body of a record."""
        return self.bodies.get(row) or decode_body(_clear(self.file, self.columns, row))

    def range(self, row: int, *, in_scan: bool) -> ByteRange:
        """Return a record as a scan of all bytes finds it."""
        offset, length = self.columns[: kernels.LENGTH + 1, row].tolist()
        return plain_range(self.file, offset, length, self.body(row), in_scan=in_scan)

    def by_transaction(self) -> Column:
        """Return the rows that belong to transactions, those of each together and in order."""
        transaction = self.columns[kernels.TRANSACTION]
        rows: Column = np.flatnonzero(transaction >= 0)
        return rows[np.argsort(transaction[rows], kind="stable")]


def plain_range(
    file: LogBytes, offset: int, length: int, body: Body, *, in_scan: bool
) -> ByteRange:
    """Return a plain record as a scan of all bytes finds it."""
    envelope = Envelope(offset, length, make_instant(file.number, offset), length)
    return ByteRange(
        file,
        offset,
        envelope.end - offset,
        Outcome.VALID,
        "record",
        envelope=envelope,
        body=body,
        in_scan=in_scan,
        checksum_valid=True if body.operation == CHECKSUM_OPERATION else None,
        clear=bytes(file.data[envelope.body : envelope.body + length]),
    )


def _clear(file: LogBytes, columns: Columns, row: int) -> bytes:
    begin = int(columns[kernels.OFFSET, row]) + PREFIX.size
    return bytes(file.data[begin : begin + int(columns[kernels.LENGTH, row])])


def xid_at(data: memoryview, place: int) -> Xid | None:
    """Decode the global id with its XA format id at ``place``, which was found whole."""
    return Cursor(data, place - FORMAT_ID_SIZE).global_id()


class RunReader:
    """Reads the runs of a log that is not encrypted."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], PlainRun] = {}
        """The whole runs that were read, by file and begin."""

    def run(self, file: LogBytes, begin: int) -> PlainRun:
        """Return the run from an offset of a file on; one that was read is not read again."""
        found = self._known.get((file.number, begin))
        return self._read_run(file, begin) if found is None else found

    def end(self, file: LogBytes, begin: int, limit: int) -> int:
        """Return the offset after the records of the run that begin before the limit."""
        run = self.run(file, begin)
        return run.end if run.end <= limit else self._read_run(file, begin, limit).end

    def _read_run(self, file: LogBytes, begin: int, limit: int | None = None) -> PlainRun:
        run = PlainRun(begin)
        for chunk in self.chunks(file, begin, limit):
            run = extended(run, chunk)
        return run

    def chunks(self, file: LogBytes, begin: int, limit: int | None = None) -> Iterator[Chunk]:
        """Yield the records from an offset on up to the end of the run.

        With a limit, only those that begin before that offset.
        """
        run, how = PlainRun(begin), kernels.FULL
        data = np.frombuffer(file.data, np.uint8)
        stop = min(file.size if limit is None else limit, file.size, POSITION_MASK)
        stop = stop if file.number <= FILE_NUMBER_MAX else begin
        while how == kernels.FULL and run.end < stop:
            chunk, how = _read(file, data, run.end, stop)
            if chunk.size:
                run = extended(run, chunk)
                yield chunk
        if limit is None or limit >= file.size:
            self._known[file.number, begin] = run


def _read(file: LogBytes, data: Bytes, position: int, stop: int) -> tuple[Chunk, int]:
    columns = np.empty((body_kernels.BODY_COLUMNS, ROWS), np.int64)
    large = np.empty((kernels.LARGE_COLUMNS, ROWS), np.int64)
    count, checks, _, how = body_kernels.scan_bodies(
        data, file.number, position, stop, columns, body_kernels.PROGRAMS, large
    )
    bad = first_bad(file, large[:, :checks])
    whole = count if bad is None else bad[1]
    bodies = _bodies(file, columns, np.flatnonzero(columns[body_kernels.ODD, :whole]).tolist())
    if None in bodies.values():
        whole = next(row for row, body in bodies.items() if body is None)
    decoded = {row: body for row, body in bodies.items() if body is not None}
    chunk = Chunk(file, data, columns[:, :whole], decoded)
    return chunk, how if whole == count else kernels.STUCK


def _bodies(file: LogBytes, columns: Columns, rows: list[int]) -> dict[int, Body | None]:
    """Decode odd rows up to the first one that cannot be decoded."""
    found: dict[int, Body | None] = {}
    for row in rows:
        try:
            body = decode_body(_clear(file, columns, row))
        except LogFormatError:
            found[row] = None
            break
        found[row] = body
    return found


def first_bad(file: LogBytes, large: Columns) -> tuple[int, int] | None:
    """Return offset and row of the first large group whose checksum differs."""
    for begin, end, crc, position, row in large.T.tolist():
        if crc32(file.data[begin:end]) != crc:
            return position, row
    return None


def extended(run: PlainRun, chunk: Chunk) -> PlainRun:
    """Return the run with the records of the chunk, which follow it."""
    columns, ends = chunk.columns, chunk.columns[kernels.OFFSET] + chunk.lengths
    checks = np.flatnonzero(columns[kernels.OPERATION] == CHECKSUM_OPERATION)
    others = np.flatnonzero(columns[kernels.OPERATION] != CHECKSUM_OPERATION)
    last = (run.last, run.last_end)
    if others.size:
        last = int(columns[kernels.OFFSET, others[-1]]), int(ends[others[-1]])
    covered = run.covered
    if checks.size:
        covered = int(ends[checks[-1]] + columns[body_kernels.COUNT, checks[-1]])
    return PlainRun(int(ends[-1]), run.records + others.size, *last, covered)
