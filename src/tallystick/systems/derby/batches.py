"""Records as Arrow batches, vectorised; and parts of files that can be read on their own.

In: a reading. Out: batches of the `RECORDS` schema that agree with ``records()`` row by row, with
null attributes. Whole plain files go through the compiled walk, with the CRC of every group; a
file with damage in it, and whatever is encrypted, goes through the record objects. What the
engine believes depends on all that lies before, so a part checks that too, once per reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tallystick.records import Clock, Outcome
from tallystick.schemas import RECORDS, record_batches
from tallystick.storage.crc import crc32
from tallystick.systems.base import Split
from tallystick.systems.derby import kernels, operations
from tallystick.systems.derby.files import LogBytes, LogFiles
from tallystick.systems.derby.layout import (
    CHECKSUM_BODY_SIZE,
    CHECKSUM_HEAD,
    HEADER,
    HEADER_SIZE,
    LOG_FILE,
    PREFIX,
    Group,
    make_instant,
)
from tallystick.systems.derby.operations import OPERATIONS
from tallystick.systems.derby.walk import last_nonzero

if TYPE_CHECKING:
    from tallystick.systems.derby.reader import DerbyReading

_VERIFY_ROWS = 1 << 16

_NO_RECORD_ID = 100
_INTS_BEFORE_ID = {
    operations.INSERT: 0,
    operations.DELETE: 0,
    operations.UPDATE_FIELD: 0,
    operations.UPDATE_ROW: 1,
    287: 1,
    104: 0,
}
_HEAD = CHECKSUM_BODY_SIZE.to_bytes(4)


def _operation_ids() -> NDArray[np.int8]:
    ids = np.full(max(OPERATIONS) + 1, -1, np.int8)
    for number in OPERATIONS:
        ids[number] = _INTS_BEFORE_ID.get(number, _NO_RECORD_ID)
    return ids


_IDS = _operation_ids()
_NAMES = sorted({operation.name for operation in OPERATIONS.values()})
_KINDS = sorted({"commit", "rollback", "prepare"} | {str(one.kind) for one in OPERATIONS.values()})


def _codes(words: list[str], word: dict[int, str]) -> NDArray[np.int8]:
    codes = np.zeros(max(OPERATIONS) + 1, np.int8)
    for number, name in word.items():
        codes[number] = words.index(name)
    return codes


_NAME_CODES = _codes(_NAMES, {number: one.name for number, one in OPERATIONS.items()})
_KIND_CODES = _codes(_KINDS, {number: str(one.kind) for number, one in OPERATIONS.items()})


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
        data, file.number, position, limit, columns, _IDS, kernels.CRC_TABLES, large
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
                yield _batch(self._log, self._file, data, columns)

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
            size = self._file.size
            self.stuck = last_nonzero(self._file.data, self.position, size) != self.position


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


def _batch(
    log: str, file: LogBytes, data: kernels.Bytes, columns: kernels.Columns
) -> pa.RecordBatch:
    offset, length, group = columns[kernels.OFFSET], columns[kernels.LENGTH], columns[kernels.GROUP]
    operation, count = columns[kernels.OPERATION], columns.shape[1]
    globals_ = _global_ids(data, columns[kernels.GLOBAL_ID])
    fields: dict[str, Any] = {
        "system": _constant("derby", count),
        "log": _constant(log, count),
        "file": _constant(file.path, count),
        "offset": pa.array(offset),
        "length": pa.array(length + PREFIX.size + 4),
        "outcome": _constant(Outcome.VALID.value, count),
        "kind": _words(_kind_codes(operation, group), _KINDS),
        "type": _words(_NAME_CODES[operation], _NAMES),
        "sequence": pa.array(offset | file.number << 32),
        "clock": _constant(Clock.NONE.value, count),
        "transaction": _optional(columns[kernels.TRANSACTION]),
        "record_id": _optional(columns[kernels.RECORD_ID]),
        "body": _binary(data, offset + PREFIX.size, length),
        "resources": _no_resources(count),
        **globals_,
    }
    arrays = [fields.get(field.name) for field in RECORDS]
    names = RECORDS.names
    filled = [
        pa.nulls(count, RECORDS.field(name).type) if array is None else array
        for name, array in zip(names, arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(filled, names=names)


def _constant(word: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), [word])


def _words(codes: NDArray[np.int8], words: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(codes, words)


def _kind_codes(operation: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int8]:
    codes = _KIND_CODES[operation]
    ends = operation == operations.END
    aborted = ends & (group & Group.COMMIT == 0) & (group & Group.ABORT != 0)
    prepared = ends & (group & (Group.COMMIT | Group.ABORT) == 0)
    codes[aborted] = _KINDS.index("rollback")
    codes[prepared] = _KINDS.index("prepare")
    return codes


def _optional(values: NDArray[np.int64]) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _binary(
    data: kernels.Bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64], valid: Any = None
) -> pa.Array:
    """Views of byte ranges of the file: nothing is copied."""
    views = np.zeros((len(starts), 16), np.uint8)
    kernels.put_views(data, starts, sizes, views)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)


def _no_resources(count: int) -> pa.Array:
    offsets = np.zeros(count + 1, np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array([], pa.string())).cast(
        RECORDS.field("resources").type
    )


def _global_ids(data: kernels.Bytes, places: NDArray[np.int64]) -> dict[str, Any]:
    """The three columns of the global id; ``places`` are those of its format number, or -1."""
    valid = places >= 0
    if not valid.any():
        return {}
    at = np.where(valid, places, 0)
    gtrid_size = np.where(valid, data[at + 4], 0).astype(np.int64)
    bqual_at = at + 5 + gtrid_size
    bqual_size = np.where(valid, data[np.where(valid, bqual_at, 0)], 0).astype(np.int64)
    number = np.zeros(len(at), np.int64)
    for step in range(4):
        number = number << 8 | data[at + step]
    return {
        "format_id": pa.array(number.astype(np.uint32).view(np.int32), mask=~valid),
        "gtrid": _binary(data, at + 5, gtrid_size, valid),
        "bqual": _binary(data, bqual_at + 1, bqual_size, valid),
    }
