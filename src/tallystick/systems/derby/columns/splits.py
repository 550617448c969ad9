"""Records as Arrow batches, vectorised; and parts of files that can be read by themselves.

In: the files of a log. Out: batches of the `RECORDS` schema that agree with ``records()`` row by
row, with null attributes. Whole plain files go through the compiled scan, with the CRC of every
group; a damaged file, and whatever is encrypted, goes through record objects. What the engine
believes depends on everything before, so a part checks that too, once per reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tallystick.arrow.byte_kernels import Bytes
from tallystick.arrow.schemas import record_batches
from tallystick.records import Clock, Outcome, Record
from tallystick.storage.crc import crc32
from tallystick.storage.zeros import is_zero
from tallystick.systems.derby.columns import kernels
from tallystick.systems.derby.columns.batches import CONTENTS, batch_of
from tallystick.systems.derby.format.layout import (
    CHECKSUM_BODY_SIZE,
    CHECKSUM_HEAD,
    HEADER,
    HEADER_SIZE,
    LENGTH,
    LOG_FILE,
    PREFIX,
    make_instant,
)
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.records import record_of
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.protocol import Split

_VERIFY_ROWS = 1 << 16
_WINDOW = 1 << 20
_CHECKSUM_LENGTH = LENGTH.pack(CHECKSUM_BODY_SIZE)


class ColumnReader:
    """Reads a log as batches.

    Args:
        log: its files.
        name: the name of the log in the batches.
        scan: returns the scan of all bytes, for what the compiled scan cannot read.
    """

    def __init__(self, log: LogFiles, name: str, scan: Callable[[], LogScan]) -> None:
        self._log = log
        self._name = name
        self._scan = scan
        self._whole: dict[int, int] = {}
        """Offset up to which each file was found whole."""

    def batches(self, split: Split | None, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the records of the split, or of the whole log."""
        end, marked = 0, True
        for number, file in self._log.files.items():
            plain = not self._log.encrypted and marked and continues(file, end)
            wanted = split is None or split.file == file.path
            begin = max(split.begin, HEADER_SIZE) if split and wanted else HEADER_SIZE
            if plain and (not wanted or begin > HEADER_SIZE):
                plain = self._is_whole(file, begin if wanted else file.size)
            if not plain:
                yield from self._object_batches(number, HEADER_SIZE, split, rows)
                return
            if wanted:
                stop = min(split.end, file.size) if split else file.size
                part = _Part(self._name, file, begin, stop)
                yield from part.batches(rows)
                if part.stuck:
                    yield from self._object_batches(number, part.position, split, rows)
                    return
                self._whole[number] = part.position
                if split is not None:
                    return
            end = make_instant(number, self._whole[number])
            marked = has_end_marker(file, self._whole[number])

    def splits(self, target_bytes: int) -> list[Split]:
        """Return parts of about ``target_bytes``, cut before checksum records."""
        found = []
        for file in self._log.files.values():
            cuts = [0]
            while not self._log.encrypted and file.size - cuts[-1] > 2 * target_bytes:
                cut = _next_group(file, cuts[-1] + target_bytes)
                if cut is None:
                    break
                cuts.append(cut)
            found += [Split(file.path, begin, end) for begin, end in pairwise([*cuts, file.size])]
        return found

    def _is_whole(self, file: LogBytes, stop: int) -> bool:
        """Return whether every record that begins before ``stop`` is whole, and every group too.

        The offset up to which a file is whole is kept, so it is scanned once.
        """
        known = self._whole.get(file.number, HEADER_SIZE)
        part = _Part(self._name, file, known, stop)
        if known < stop:
            part.verify()
            self._whole[file.number] = part.position
        return not part.stuck

    def _object_batches(
        self, first: int, begin: int, split: Split | None, rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rest of the log from offset ``begin`` of file ``first`` on, by objects."""
        records = self._records(first, begin, split)
        yield from record_batches(records, self._name, Clock.NONE.value, rows)

    def _records(self, first: int, begin: int, split: Split | None) -> Iterator[Record]:
        for number, file in self._log.files.items():
            if number < first or (split is not None and file.path != split.file):
                continue
            for one in self._scan().file_ranges(number):
                if (
                    one.envelope is not None
                    and not one.salvaged
                    and one.outcome is not Outcome.STALE
                    and (number > first or one.offset >= begin)
                    and (split is None or split.begin <= one.offset < split.end)
                ):
                    yield record_of(one)


def _next_group(file: LogBytes, position: int) -> int | None:
    """Return the first place from ``position`` on with the length, instant and head of a group."""
    for start in range(position, file.size, _WINDOW):
        window = bytes(file.data[start : start + _WINDOW + CHECKSUM_BODY_SIZE])
        hit = window.find(_CHECKSUM_LENGTH)
        while hit >= 0:
            place = start + hit
            head = PREFIX.pack(CHECKSUM_BODY_SIZE, make_instant(file.number, place)) + CHECKSUM_HEAD
            if file.data[place : place + len(head)] == head:
                return place
            hit = window.find(_CHECKSUM_LENGTH, hit + 1)
    return None


def has_end_marker(file: LogBytes, end: int) -> bool:
    """Return whether a scan goes on from ``end`` to the next file: at a length, which is zero.

    It also ends at a file that holds nothing but its header.
    """
    return max(end, HEADER_SIZE + 1) + LENGTH.size <= file.size


def continues(file: LogBytes, end: int) -> bool:
    """Return whether the file's header is right and continues at ``end`` (0: anywhere)."""
    if file.size < HEADER_SIZE:
        return False
    format_id, _, number, previous = HEADER.unpack_from(file.data)
    return format_id == LOG_FILE and number == file.number and end in (0, previous)


class _Part:
    """A range of a plain file, scanned once; ``begin`` is a group or the header's end.

    Afterwards ``position`` is where it ended, and ``stuck`` says that this is not plainly the end.
    """

    def __init__(self, log: str, file: LogBytes, begin: int, stop: int) -> None:
        self._log = log
        self._file = file
        self._stop = stop
        self.position = begin
        self.stuck = False

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the records as batches, each with its checksums verified."""
        data = np.frombuffer(self._file.data, np.uint8)
        for columns in self._chunks(data, rows):
            if columns.shape[1]:
                yield batch_of(self._log, self._file, data, columns)

    def verify(self) -> None:
        """Verify the checksums only."""
        data = np.frombuffer(self._file.data, np.uint8)
        for _ in self._chunks(data, _VERIFY_ROWS):
            pass

    def _chunks(self, data: Bytes, rows: int) -> Iterator[kernels.Columns]:
        how, covered = kernels.FULL, 0
        while how == kernels.FULL and self.position < self._stop:
            columns = np.empty((kernels.COLUMNS, rows), np.int64)  # a batch keeps it
            large = np.empty((kernels.LARGE_COLUMNS, rows), np.int64)
            count, checks, position, covered, how = kernels.scan_records(
                data,
                self._file.number,
                self.position,
                covered,
                self._stop,
                columns,
                CONTENTS,
                large,
            )
            if (bad := _first_bad(self._file, large[:, :checks])) is not None:
                position, count = bad
                how = kernels.STUCK
            self.position = position
            self.stuck = how == kernels.STUCK
            yield columns[:, :count]
        if how == kernels.ENDED:
            self.stuck = not is_zero(self._file.data, self.position, self._file.size)


def _first_bad(file: LogBytes, large: kernels.Columns) -> tuple[int, int] | None:
    """Offset and row of the first large group whose checksum differs."""
    for begin, end, crc, position, row in large.T.tolist():
        if crc32(file.data[begin:end]) != crc:
            return position, row
    return None
