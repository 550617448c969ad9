"""Records as Arrow batches, vectorised; and parts of files that can be read by themselves.

In: the files of a log. Out: batches of the `RECORDS` schema that agree with ``records()`` row by
row, with null attributes. Whole plain files go through the walk, with the CRC of every group; a
damaged file, and whatever is encrypted, goes through record objects. What the engine believes
depends on everything before: so a reading of a split walks all earlier files once, to prove that
they are plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pyarrow as pa

from tallystick.arrow.schemas import record_batches
from tallystick.records import Clock, Outcome, Record
from tallystick.storage.mapped import let_go
from tallystick.storage.zeros import is_zero
from tallystick.systems.derby.columns.batches import batch_of
from tallystick.systems.derby.format.layout import (
    CHECKSUM_BODY_SIZE,
    CHECKSUM_HEAD,
    HEADER_SIZE,
    LENGTH,
    PREFIX,
    make_instant,
)
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.records import record_of
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.runs.chunk import heads
from tallystick.systems.derby.runs.pieces import Chain
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
        chain = Chain()
        for number, file in self._log.files.items():
            plain = not self._log.encrypted and chain.goes_on(file)
            wanted = split is None or split.file == file.path
            begin = max(split.begin, HEADER_SIZE) if split and wanted else HEADER_SIZE
            if plain and (not wanted or begin > HEADER_SIZE):
                # The files before it are read for this alone: where one of them is damaged, the
                # engine's scan does not come here, and what it believes is up to the objects.
                plain = self._is_whole(file, begin if wanted else file.size)
            if not plain:
                yield from self._object_batches(number, HEADER_SIZE, split, rows)
                return
            if wanted:
                stop = min(split.end, file.size) if split else file.size
                for chunk in heads(file, begin, stop, rows):
                    yield batch_of(self._name, chunk)
                    begin = chunk.end
                if not _is_plain(file, begin, stop):
                    yield from self._object_batches(number, begin, split, rows)
                    return
                self._whole[number] = begin
                if split is not None:
                    return
            chain.add(file, self._whole[number])

    def splits(self, target_bytes: int) -> list[Split]:
        """Return parts of about ``target_bytes``, cut before checksum records."""
        files = self._log.files.values()
        return [split for file in files for split in self.parts(file, target_bytes)]

    def parts(self, file: LogBytes, target_bytes: int) -> list[Split]:
        """Return those of one file."""
        cuts = [0]
        while not self._log.encrypted and file.size - cuts[-1] > 2 * target_bytes:
            cut = _next_group(file, cuts[-1] + target_bytes)
            if cut is None:
                break
            cuts.append(cut)
        return [Split(file.path, begin, end) for begin, end in pairwise([*cuts, file.size])]

    def _is_whole(self, file: LogBytes, stop: int) -> bool:
        """Return whether every record that begins before ``stop`` is whole, and every group too.

        The offset up to which a file is whole is kept, so it is scanned once.
        """
        end = self._whole.get(file.number, HEADER_SIZE)
        for chunk in heads(file, end, stop, _VERIFY_ROWS):
            end = chunk.end
        self._whole[file.number] = end
        return _is_plain(file, end, stop)

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
        # It reaches into the next window, so that a length on the border is not cut in two.
        window = bytes(file.data[start : start + _WINDOW + CHECKSUM_BODY_SIZE])
        hit = window.find(_CHECKSUM_LENGTH)
        while hit >= 0:
            place = start + hit
            head = PREFIX.pack(CHECKSUM_BODY_SIZE, make_instant(file.number, place)) + CHECKSUM_HEAD
            # The length alone stands in many places; a record also states its own place.
            if file.data[place : place + len(head)] == head:
                return place
            hit = window.find(_CHECKSUM_LENGTH, hit + 1)
        let_go(file.data, start)
    return None


def _is_plain(file: LogBytes, end: int, stop: int) -> bool:
    """Return whether records that end at an offset are all that begin before another."""
    return end >= stop or is_zero(file.data, end, file.size)
