"""A log in pieces: chunks of plain records, and ranges of everything else.

In: the scan of all bytes. Out: pieces that tile its files, in order. The scan gives the ranges;
where records are plain the compiled walk takes over, if that pays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from tallystick.systems import runs
from tallystick.systems.derby.format.layout import (
    HEADER,
    HEADER_SIZE,
    LENGTH,
    LOG_FILE,
    make_instant,
)
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.scan import FileScan, LogScan
from tallystick.systems.derby.read.spans import ByteRange

if TYPE_CHECKING:
    from tallystick.systems.derby.runs.chunk import Chunk, Runs

Piece: TypeAlias = "ByteRange | Chunk"


def runs_of(log: LogFiles, size: int) -> Runs | None:
    """Return the runs of a log, of which so many bytes are to be read; None where none pays."""
    if log.encrypted or not runs.pay_here(size):
        return None
    from tallystick.systems.derby.runs.chunk import Runs

    return Runs(log)


def file_pieces(file: FileScan, found: Runs | None) -> Iterator[Piece]:
    """Yield the pieces of one file."""
    yield file.header()
    position = HEADER_SIZE
    while position < file.file.size:
        if found is not None:
            for chunk in _chunks(file, found, position):
                yield chunk
                position = chunk.end
        for one in file.step(position):
            yield one
            position = one.offset + one.length


def ranges_between(scan: LogScan, found: Runs | None, begin: int, end: int) -> Iterator[ByteRange]:
    """Yield the ranges of a file that begin between two instants of it."""
    for piece in file_pieces(scan.file(begin >> 32), found):
        if isinstance(piece, ByteRange):
            if begin <= piece.place < end:
                yield piece
            past = piece.place >= end
        else:
            first, last = piece.instants.searchsorted((begin, end)).tolist()
            yield from (piece.range(row, scan) for row in range(first, last))
            past = last < piece.size
        if past:
            return


def _chunks(file: FileScan, found: Runs, position: int) -> Iterator[Chunk]:
    """Yield the plain records from an offset on that are judged alike."""
    end, dropped = file.alike_until(position)
    for chunk in found.chunks(file.file, position, end):
        yield replace(chunk, dropped=dropped)


def pieces_to_odd(scan: LogScan, found: Runs) -> Iterator[Piece | Iterator[ByteRange]]:
    """Yield the pieces of a log up to the first record that is in no chunk, or is dropped.

    The last item is then one iterator over all ranges from that record on, of plain ones, too.
    """
    for number in scan.log.files:
        file = scan.file(number)
        end = HEADER_SIZE
        yield file.header()
        for chunk in found.chunks(file.file, end, file.believed_until()):
            yield chunk
            end = chunk.end
        for one in (ranges := file.rest(end)):
            if one.envelope is not None:
                yield chain([one], ranges, scan.ranges(number + 1))
                return
            yield one


class Chain:
    """Follows a log from file to file as long as all is plain, to its end."""

    def __init__(self) -> None:
        self._end = 0
        self._marked = True

    def goes_on(self, file: LogBytes) -> bool:
        """Return whether the engine's scan comes to the file: its header continues the chain."""
        if not self._marked or file.size < HEADER_SIZE:
            return False
        format_id, _, number, previous = HEADER.unpack_from(file.data)
        return format_id == LOG_FILE and number == file.number and self._end in (0, previous)

    def add(self, file: LogBytes, end: int) -> None:
        """Take in a file of which the last record ends at an offset.

        The scan ends there unless the length that it reads next is zero, and at a file that holds
        nothing but its header.
        """
        self._end = make_instant(file.number, end)
        # A byte more than the header, as the scan ends in a file of just a header and one length.
        self._marked = max(end, HEADER_SIZE + 1) + LENGTH.size <= file.size
