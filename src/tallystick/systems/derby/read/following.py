"""The part of a log that tells what is committed between two instants, for one who follows it.

In: the numbers of the log files, and what opens some of them. Out: a `Part`. A commit needs the
records of its transaction from the begin record on. So the log is walked back from the first
instant, record by record, to the begin records of the transactions that commit after it, and to the
group that these are in: a part costs what is new and the time that its transactions were open.

What precedes the part is not looked at, damaged or not: it was whole when it was read at an earlier
step. What follows it is looked at up to its first whole record: a later step reads on from there.
Where damage, a flag that does not fit or a missing record leaves any doubt, all files are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from tallystick.errors import LogFormatError
from tallystick.records import Outcome
from tallystick.systems.derby.format.compressed_numbers import Cursor
from tallystick.systems.derby.format.layout import (
    HEADER_SIZE,
    LENGTH,
    LOG_RECORD,
    LOG_RECORD_FIXED_OVERHEAD_SIZE,
    Envelope,
    Group,
    make_instant,
    read_envelope,
    split_instant,
)
from tallystick.systems.derby.format.operations import BEGIN
from tallystick.systems.derby.read.changes import Pending, damaged, is_damaged, require_joined
from tallystick.systems.derby.read.files import LogBytes, LogFiles, previous_end
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange

_FIRST, _LAST, _COMMIT = int(Group.FIRST), int(Group.LAST), int(Group.COMMIT)
_CHECKSUM = int(Group.CHECKSUM)
"""As plain numbers: the operators of flags would take longer than all else that a walk does."""

FilesOf = Callable[[Collection[int]], LogFiles]
"""Opens log files of these numbers, those of them that can be."""


OpenAt = Callable[[int, int, Collection[int]], tuple[Pending, int]]
"""Returns what transactions changed between two instants, and how far that was read."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a log that commits between two instants.

    Attributes:
        log: the files of the part, and the one after it.
        begin: the instant of its first record.
        after, until: the instants.
        begun: the transactions that commit and have their begin record before ``after``.
        goes_on: there are log files after these.
    """

    log: LogFiles
    begin: int
    after: int
    until: int
    begun: frozenset[int]
    goes_on: bool

    @property
    def size(self) -> int:
        """About how many bytes it has."""
        (first, position), (last, stop) = split_instant(self.begin), split_instant(self.until)
        return stop - position + sum(self.log.files[one].size for one in range(first, last))

    def opened(self, open_at: OpenAt | None) -> tuple[Pending, int]:
        """Return what is open at an instant that is not after ``after``, and this instant."""
        if not self.begun:
            return {}, max(self.begin, self.after)
        if open_at is None:
            return {}, self.begin
        found, place = open_at(self.begin, self.after, self.begun)
        return {number: {} for number in self.begun} | found, place

    def ranges(self, scan: LogScan, place: int, check: Callable[[], None]) -> Iterator[ByteRange]:
        """Yield the valid ranges from an instant on.

        Args:
            scan: of these files; the engine's scan of them reaches ``until``.
            place: as `opened` gives it.
            check: raises if anything in the log is damaged; called after the last range if it is
                not certain that a later step looks at what follows.

        Raises:
            CorruptLogError: records are damaged.
        """
        number, position = split_instant(place)
        for one in chain(scan.file(number).rest(position), scan.ranges(number + 1)):
            if one.place < self.until:
                if is_damaged(one):
                    raise damaged(one)
                if one.outcome is Outcome.VALID and one.place + one.length <= self.until:
                    yield one
            elif is_damaged(one):
                check()
                return
            elif one.outcome is Outcome.VALID and one.envelope is not None:
                return
        if self.goes_on:
            check()


class _DoubtError(Exception):
    """Only a reading of all files tells what is committed."""


def part_between(
    numbers: Collection[int], files_of: FilesOf, after: int, until: int
) -> Part | None:
    """Return the part that tells what is committed; None if only all files tell it.

    Raises:
        LogUnreadableError: log files after the instant ``after`` are gone.
    """
    first, last = after >> 32, until >> 32
    if until < after:
        return None
    # One file more: its header says where the last one of the part ends.
    wanted = {one for one in numbers if first <= one <= last + 1}
    log = files_of(wanted)
    require_joined({*numbers} - (wanted - log.files.keys()), log, after, until)
    try:
        walk = _Walk(log, files_of, numbers)
        begin, begun = walk.back(after, walk.begun_before(after, until))
    except (_DoubtError, LogFormatError):
        return None
    return Part(walk.log, begin, after, until, begun, max(numbers) > last + 1)


class _Head(NamedTuple):
    """What a record says of its transaction."""

    checks: bool
    transaction: int | None
    begins: bool
    ends: bool
    commits: bool


class _Walk:
    """Walks over records without their fields, and opens the files that it comes to."""

    def __init__(self, log: LogFiles, files_of: FilesOf, numbers: Collection[int]) -> None:
        self.log = log
        self._files_of, self._numbers = files_of, numbers

    def begun_before(self, after: int, until: int) -> set[int]:
        """Return the transactions that commit between two instants and do not begin there."""
        found: set[int] = set()
        begun: set[int] = set()
        for head in self._heads(after, until):
            if head.transaction is None:
                continue
            if head.begins:
                begun.add(head.transaction)
            if head.commits and head.transaction not in begun:
                found.add(head.transaction)
            if head.ends:
                begun.discard(head.transaction)
        return found

    def _heads(self, after: int, until: int) -> Iterator[_Head]:
        number, position = split_instant(after)
        while (place := make_instant(number, position)) < until:
            file, following = self.log.files.get(number), self.log.files.get(number + 1)
            envelope = None if file is None else _record_at(file, position)
            if file is not None and envelope is not None:
                yield self._head(file, envelope)
                position = envelope.end
            # No record here: it is the end of the file only if the next file confirms it.
            elif following is not None and previous_end(following) == place:
                number, position = number + 1, HEADER_SIZE
            else:
                raise _DoubtError

    def back(self, after: int, wanted: set[int]) -> tuple[int, frozenset[int]]:
        """Walk back until the last begin or end record of each wanted transaction is passed.

        Returns:
            The instant of the first record of the group that has these, and those of the
            transactions that begin there.
        """
        number, end = split_instant(after)
        begun: set[int] = set()
        while True:
            file = self._file(number)
            if file is None:
                return make_instant(number + 1, HEADER_SIZE), frozenset(begun)
            if end == HEADER_SIZE:
                if not wanted or number - 1 not in self._numbers:
                    return make_instant(number, end), frozenset(begun)
                number, end = split_instant(previous_end(file))
                if number != file.number - 1:
                    raise _DoubtError
                continue
            envelope = _record_before(file, end)
            head = self._head(file, envelope)
            end = envelope.position
            # Backward, a group's checksum record is met after the group's other records. The walk
            # ends only there, so that the part begins with a whole group that can be checked.
            if head.checks and not wanted:
                return make_instant(number, end), frozenset(begun)
            # An end record of this number is of an earlier transaction, as numbers start anew with
            # each boot: the begin record that is wanted does not exist, and looking further back
            # would find that of the earlier one.
            if head.transaction in wanted and (head.begins or head.ends):
                wanted.discard(head.transaction)
                begun |= {head.transaction} if head.begins else set()

    def _file(self, number: int) -> LogBytes | None:
        if number not in self.log.files and number in self._numbers:
            opened = {**self._files_of([number]).files, **self.log.files}
            self.log = replace(self.log, files=dict(sorted(opened.items())))
        return self.log.files.get(number)

    def _head(self, file: LogBytes, envelope: Envelope) -> _Head:
        """Decode the head of a body.

        Raises:
            _DoubtError: what it says of its transaction does not fit its operation.
        """
        cursor = Cursor(self.log.clear(file.number, envelope))
        cursor.expect(LOG_RECORD, "log record")
        group, transaction, operation = (
            cursor.compressed_int(),
            cursor.transaction(),
            cursor.uint(2),
        )
        begins, ends = operation == BEGIN, group & _LAST != 0
        if begins != (group & _FIRST != 0) or (begins and ends):
            raise _DoubtError
        return _Head(
            group & _CHECKSUM != 0, transaction, begins, ends, ends and group & _COMMIT != 0
        )


def _record_at(file: LogBytes, position: int) -> Envelope | None:
    """Return the whole record at an offset, None if there is none."""
    envelope = read_envelope(file.data, position)
    if envelope is None or envelope.instant != make_instant(file.number, position):
        return None
    return envelope if envelope.trailing == envelope.length else None


def _record_before(file: LogBytes, end: int) -> Envelope:
    """Return the whole record that ends at an offset."""
    envelope = None
    if HEADER_SIZE < end <= file.size:
        (length,) = LENGTH.unpack_from(file.data, end - LENGTH.size)
        position = end - length - LOG_RECORD_FIXED_OVERHEAD_SIZE
        envelope = _record_at(file, position) if HEADER_SIZE <= position < end else None
    if envelope is None or envelope.end != end:
        raise _DoubtError
    return envelope
