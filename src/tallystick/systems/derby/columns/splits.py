"""Records as Arrow batches, vectorised; and parts of files that can be read on their own.

In: a reading. Out: batches of the `RECORDS` schema that agree with ``records()`` row by row, with
null attributes. Whole plain files go through the compiled walk, with the CRC of every group; a
file with damage in it, and whatever is encrypted, goes through the record objects. What the
engine believes depends on all that lies before, so a part checks that too, once per reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tallystick.arrow.schemas import record_batches
from tallystick.records import Clock, Outcome
from tallystick.storage.crc import crc32
from tallystick.storage.zeros import is_zero
from tallystick.systems.derby.columns import kernels
from tallystick.systems.derby.format.layout import (
    CHECKSUM_BODY_SIZE,
    CHECKSUM_HEAD,
    HEADER,
    HEADER_SIZE,
    LOG_FILE,
    make_instant,
)
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.protocol import Split

if TYPE_CHECKING:
    from tallystick.systems.derby.reader import DerbyReading

from tallystick.systems.derby.columns.batches import OPERATION_IDS, batch_of

_VERIFY_ROWS = 1 << 16

_HEAD = CHECKSUM_BODY_SIZE.to_bytes(4)


def batches(reading: DerbyReading, split: Split | None, rows: int) -> Iterator[pa.RecordBatch]:
    """The records of the split, or of the whole log."""
    end = 0
    for number, file in reading.log.files.items():
        plain = not reading.log.encrypted and _link(reading.log, number, end)
        wanted = split is None or split.file == file.path
        begin = max(split.begin, HEADER_SIZE) if split and wanted else HEADER_SIZE
        if plain and (not wanted or begin > HEADER_SIZE):
            plain = _is_whole(reading, file, begin if wanted else file.size)
        if not plain:
            yield from _slow(reading, number, HEADER_SIZE, split, rows)
            return
        if wanted:
            stop = min(split.end, file.size) if split else file.size
            part = _Part(reading.source.path, file, begin, stop)
            yield from part.batches(rows)
            if part.stuck:
                yield from _slow(reading, number, part.position, split, rows)
                return
            reading.whole[number] = part.position
        if split is not None and wanted:
            return
        end = make_instant(number, reading.whole[number])


def splits(log: LogFiles, target_bytes: int) -> list[Split]:
    """Parts of about ``target_bytes``, cut where a checksum record stands."""
    found = []
    for file in log.files.values():
        cuts = [0]
        while not log.encrypted and file.size - cuts[-1] > 2 * target_bytes:
            cut = _next_group(file, cuts[-1] + target_bytes)
            if cut is None:
                break
            cuts.append(cut)
        found += [
            Split(file.path, begin, end)
            for begin, end in zip(cuts, [*cuts[1:], file.size], strict=True)
        ]
    return found


def _next_group(file: LogBytes, position: int) -> int | None:
    """The first checksum record at or behind the place: its length, own instant, and its start."""
    window = 1 << 20
    for start in range(position, file.size, window):
        piece = bytes(file.data[start : start + window + CHECKSUM_BODY_SIZE])
        hit = piece.find(_HEAD)
        while hit >= 0:
            place = start + hit
            own = make_instant(file.number, place).to_bytes(8)
            if file.data[place + 4 : place + 20] == own + CHECKSUM_HEAD:
                return place
            hit = piece.find(_HEAD, hit + 1)
    return None


def _link(log: LogFiles, number: int, end: int) -> bool:
    """True if the file's header is right and continues the end reached (0: any)."""
    file = log.files.get(number)
    if file is None or file.size < HEADER_SIZE:
        return False
    header = HEADER.unpack_from(file.data)
    return header[0] == LOG_FILE and header[2] == number and end in (0, header[3])


def _is_whole(reading: DerbyReading, file: LogBytes, stop: int) -> bool:
    """True if every record that begins before ``stop`` is whole, and every group has its CRC.

    How far a file was found whole is kept with the reading, so it is walked once.
    """
    known = reading.whole.get(file.number, HEADER_SIZE)
    part = _Part("", file, known, stop)
    if known < stop:
        part.verify()
        reading.whole[file.number] = part.position
    return not part.stuck


def _scratch(rows: int) -> tuple[kernels.Columns, kernels.Columns]:
    return np.empty((kernels.COLUMNS, rows), np.int64), np.empty((5, rows), np.int64)


def _walk(
    data: kernels.Bytes,
    file: LogBytes,
    position: int,
    limit: int,
    columns: kernels.Columns,
    large: kernels.Columns,
) -> tuple[int, int, int, int]:
    return kernels.walk(
        data, file.number, position, limit, columns, OPERATION_IDS, kernels.CRC_TABLES, large
    )


class _Part:
    """A range of a plain file, walked once; ``begin`` is a group or the header's end.

    Afterwards ``position`` is where it ended, ``stuck`` if that is not plainly the end.
    """

    def __init__(self, log: str, file: LogBytes, begin: int, stop: int) -> None:
        self._log = log
        self._file = file
        self._stop = stop
        self.position = begin
        self.stuck = False

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The records as batches, each with its checksums verified."""
        data = np.frombuffer(self._file.data, np.uint8)
        for columns in self._chunks(data, rows):
            if columns.shape[1]:
                yield batch_of(self._log, self._file, data, columns)

    def verify(self) -> None:
        """The checksums only."""
        data = np.frombuffer(self._file.data, np.uint8)
        for _ in self._chunks(data, _VERIFY_ROWS):
            pass

    def _chunks(self, data: kernels.Bytes, rows: int) -> Iterator[kernels.Columns]:
        how = kernels.FULL
        while how == kernels.FULL and self.position < self._stop:
            columns, large = _scratch(rows)  # a batch keeps the columns
            count, checks, position, how = _walk(
                data, self._file, self.position, self._stop, columns, large
            )
            if (bad := _first_bad(self._file, large, checks)) is not None:
                position, count, how = *bad, kernels.STUCK
            self.position = position
            self.stuck = how == kernels.STUCK
            yield columns[:, :count]
        if how == kernels.ENDED:
            self.stuck = not is_zero(self._file.data, self.position, self._file.size)


def _first_bad(file: LogBytes, large: kernels.Columns, checks: int) -> tuple[int, int] | None:
    """Position and row of the first large group whose checksum differs."""
    for begin, end, crc, position, row in large[:, :checks].T.tolist():
        if crc32(file.data[begin:end]) != crc:
            return position, row
    return None


def _slow(
    reading: DerbyReading, first: int, begin: int, split: Split | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """The rest of the log from a place in file ``first`` on, through record objects."""
    from tallystick.systems.derby.reader import record_of

    records = (
        record_of(piece)
        for number in reading.log.files
        if number >= first and (not split or reading.log.files[number].path == split.file)
        for piece in reading.walk.file_pieces(number)
        if piece.envelope is not None
        and not piece.salvaged
        and piece.outcome is not Outcome.STALE
        and (number > first or piece.offset >= begin)
        and (split is None or split.begin <= piece.offset < split.end)
    )
    yield from record_batches(records, reading.source.path, Clock.NONE.value, rows)
