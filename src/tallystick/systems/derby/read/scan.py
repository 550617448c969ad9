"""Every byte of every log file, sorted into pieces: what the engine reads, and what lies behind.

In: `LogFiles`. Out: `Piece`s that tile each file in order. A record is found by its own instant:
eight bytes that say where it lies, so the walk goes on behind damage that ends the engine's scan.

    place                                       outcome
    reached by a scan of the engine, or         valid
      intact and before recovery's start
    in a group whose checksum differs,          corrupt: it was acknowledged
      or bytes of no record; records follow
    the same, and nothing follows               torn: the last write never finished
    intact, behind the engine's end             valid, salvaged
    in a file that no chain reaches and that    stale
      does not fit the end of the one before
    zeros                                       unused (corrupt if records follow)
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import Outcome
from tallystick.systems.derby.engine.forward_scan import ForwardScan, ScanFailureError
from tallystick.systems.derby.engine.recovery import Recovery
from tallystick.systems.derby.format.layout import (
    CHECKSUM_HEAD,
    HEADER,
    HEADER_SIZE,
    PREFIX,
    find_record,
    make_instant,
    read_envelope,
    stands_at,
)
from tallystick.systems.derby.read.byte_ranges import Chain, Piece, checksum_holds, decode_or_error
from tallystick.systems.derby.read.file_walk import FileWalk
from tallystick.systems.derby.read.files import LogBytes, LogFiles


class Walk:
    """Sorts the bytes of a log; `pieces` may be iterated any number of times."""

    def __init__(self, log: LogFiles, recovery: Recovery) -> None:
        self.log = log
        self._undo_mark = recovery.undo_mark
        self._recovered = _recovered(log, recovery)
        self._scanned = (0, 0)
        if log.files:
            first = make_instant(log.first, HEADER_SIZE)
            same = self._recovered[0] == first
            self._scanned = self._recovered if same else _extent(log, first)
        self._last = max(self._scanned[1], self._recovered[1]) >> 32
        self._has_checksums = any(map(_starts_with_checksum, log.files.values()))

    def pieces(self, first: int = 0) -> Iterator[Piece]:
        """All pieces from file ``first`` on, in order of numbers, each file tiled."""
        for number in self.log.files:
            if number >= first:
                yield from self.file_pieces(number)

    def file_pieces(self, number: int) -> Iterator[Piece]:
        """The pieces of one file."""
        yield from FileWalk(self, self.log.files[number]).pieces()

    @staticmethod
    def bare(log: LogFiles, number: int, chain: Chain) -> Iterator[Piece]:
        """The records of a chain as pieces, believed or not; checksums are tried."""
        file = log.files[number]
        for envelope in chain:
            clear, body, error = decode_or_error(log, number, envelope)
            length = envelope.end - envelope.position
            outcome = Outcome.CORRUPT if error else Outcome.VALID
            yield Piece(
                file,
                envelope.position,
                length,
                outcome,
                "record",
                error,
                envelope,
                body,
                checksum_valid=checksum_holds(file, envelope, body),
                clear=clear,
            )

    def reached(self, place: int) -> bool:
        """True where a scan of the engine gets."""
        return self.in_scan(place) or self._recovered[0] <= place < self._recovered[1]

    def believed(self, place: int) -> bool:
        """True for what a boot takes for granted: reached, or older than recovery's start."""
        return self.reached(place) or place < self._undo_mark

    def in_scan(self, place: int) -> bool:
        """True where the scan from the first file gets."""
        return self._scanned[0] <= place < self._scanned[1]

    def clean_to_end(self, number: int) -> bool:
        """True if the engine's scan went through this file and into the next one."""
        return number < self._last

    def is_stale(self, file: LogBytes) -> bool:
        """True if no chain reaches the file and it does not continue the one before."""
        if file.number <= self._last or file.size < HEADER_SIZE:
            return False
        before = self.log.files.get(file.number - 1)
        if before is None:
            return False
        return bool(HEADER.unpack_from(file.data)[3] != _intact_end(before))

    def follows(self, file: LogBytes, position: int) -> bool:
        """True if a whole group stands at or behind the place, here or in a later file.

        Records alone may be the rest of one torn write; a log without checksums has no better.
        """
        later = [other for number, other in self.log.files.items() if number > file.number]
        return self._group_from(file, position) or any(
            not self.is_stale(other) and self._group_from(other, HEADER_SIZE) for other in later
        )

    def _group_from(self, file: LogBytes, position: int) -> bool:
        place = find_record(file.data, file.number, position)
        if place is None or not self._has_checksums or self.log.sealed:
            return place is not None
        while place is not None:
            envelope = read_envelope(file.data, place)
            assert envelope is not None
            _, body, _ = decode_or_error(self.log, file.number, envelope)
            if checksum_holds(file, envelope, body):
                return True
            place = find_record(file.data, file.number, envelope.end)
        return False


def _starts_with_checksum(file: LogBytes) -> bool:
    """Plain files only; what an encrypted one holds is no matter without its key."""
    head = PREFIX.size + HEADER_SIZE
    return file.data[head : head + len(CHECKSUM_HEAD)] == CHECKSUM_HEAD


def _recovered(log: LogFiles, recovery: Recovery) -> tuple[int, int]:
    if recovery.stop:
        return recovery.start, recovery.stop
    return _extent(log, recovery.start) if recovery.start >> 32 in log.files else (0, 0)


def _extent(log: LogFiles, start: int) -> tuple[int, int]:
    scan = ForwardScan(log, start)
    try:
        for _ in scan:
            pass
    except ScanFailureError:
        pass
    return start, scan.stop


def _intact_end(file: LogBytes) -> int:
    """The instant behind the last whole record of the file, damage passed over."""
    position, end = find_record(file.data, file.number, HEADER_SIZE), HEADER_SIZE
    while position is not None:
        envelope = read_envelope(file.data, position)
        assert envelope is not None
        end = envelope.end
        position = (
            end
            if stands_at(file.data, file.number, end)
            else find_record(file.data, file.number, end)
        )
    return make_instant(file.number, end)
