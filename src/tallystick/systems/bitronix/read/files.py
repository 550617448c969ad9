"""The dual files of one journal as the bytes prove them: what is in each, and which is later.

In: the bytes of both parts. Out: `DualFiles` with each part's spans, and the order of the parts.
What the original makes of them is in `engine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from tallystick.storage.zeros import last_nonzero_end
from tallystick.systems.bitronix.format.layout import (
    CLEAN_LOG_STATE,
    COMMITTING,
    HEADER_LENGTH,
    RECORD_HEAD,
    UNCLEAN_LOG_STATE,
    WALL_CLOCK_MIN,
    FileHeader,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord, decode_record
from tallystick.systems.bitronix.read.numbers import LastStart, takes_numbers
from tallystick.systems.bitronix.read.scan import (
    CountedWalk,
    RecordSpan,
    Stamp,
    counted_end,
    header_span,
    stamp,
    tail_spans,
    unused_span,
)
from tallystick.systems.bitronix.read.search import RecordSearch, find

_FOUND_MAX = 1000
"""Places of a gtrid that are looked at: one of a few bytes may be everywhere."""
_COPIES_MAX = 200
"""Open decisions at the begin of a file that are looked for in the other one."""
_LAST_MAX = 200
"""Records at the end of a file from which the other one goes on."""
_MAKING_MS_MAX, _FILLED_PER_MS_MIN = 1_000, 5_000
"""Time in which a first start makes both files, and the bytes of one that it fills in a ms: the
originals took 102 to 117 ms for files of 1 MiB."""


@dataclass
class Part:
    """One file of the pair.

    What is asked for is searched for, without a walk through the file.

    Attributes:
        number: 1 or 2.
        path: None for a missing file.
        data: None where the file is missing or cannot be read.
    """

    number: int
    path: str | None
    data: memoryview | None

    @cached_property
    def header(self) -> FileHeader | None:
        """The file header; None without data, or with fewer than 21 bytes."""
        return None if self.data is None else FileHeader.decode(self.data)

    @cached_property
    def last(self) -> TransactionLogRecord | None:
        """The last whole record that begins in the counted range."""
        return next(self._last_records(), None)

    def last_records(self) -> list[TransactionLogRecord]:
        """Return the last whole records that begin in the counted range, in their order."""
        return list(islice(self._last_records(), _LAST_MAX))[::-1]

    def _last_records(self) -> Iterator[TransactionLogRecord]:
        if self.data is None or self.header is None:
            return iter(())
        return RecordSearch(self.data).last_records(HEADER_LENGTH, self.counted_end)

    @property
    def size(self) -> int:
        """Bytes of the file; 0 without data."""
        return 0 if self.data is None else len(self.data)

    @cached_property
    def counted_end(self) -> int:
        """The end of the range that the header counts; 0 without a header."""
        return 0 if self.header is None else counted_end(self.header, self.size)

    @cached_property
    def content_end(self) -> int:
        """Where the zeros at the end of the file begin, looked for once: they are most of it."""
        return 0 if self.data is None else last_nonzero_end(self.data, 0, self.size)

    def counted_spans(self) -> Iterator[RecordSpan]:
        """Yield the spans of the header and of the counted range."""
        if self.data is None or not self.size:
            return
        yield header_span(self.data)
        if self.header is not None:
            yield from CountedWalk(self.data).spans()

    def spans(self, newest: Stamp | None) -> Iterator[RecordSpan]:
        """Yield all spans of the file; ``newest`` as in `tail_spans`."""
        place = 0
        for span in self.counted_spans():
            yield span
            place = span.end
        if self.data is not None and place < self.content_end:
            yield from tail_spans(self.data, place, newest)
        elif place < self.size:
            yield unused_span(place, self.size)

    def was_used_first(self) -> bool:
        """Return whether no file may have been in use before this one.

        Not so where its first record is not numbered as one soon after a start, or a record of an
        earlier use of the file stands after those that count.
        """
        if self.data is None or self.header is None:
            return True
        first = [one.record for one in self.first_records() if one.record is not None]
        if first and not LastStart(first).begins_anew(first[0]):
            return False
        at = RecordSearch(self.data).next_record(self.counted_end, self.content_end)
        found = None if at is None else decode_record(self.data, at, self.size)
        return found is None or found.time >= self.header.timestamp

    @cached_property
    def swap_defect(self) -> bool:
        """True if the timestamp is an offset in this file, as 2.1.3 and 2.1.4 leave it at a swap.

        That is the position, or the start of a record that only COMMITTING records precede.
        """
        if self.header is None or not HEADER_LENGTH <= self.header.timestamp <= self.size:
            return False
        mark = self.header.timestamp
        for span in self.counted_spans():
            decided = span.record is not None and span.record.status == COMMITTING
            if span.offset and (span.offset >= mark or not decided):
                return span.offset == mark
        return mark == self.header.position

    def first_decision(self) -> bytes:
        """Return the bytes of the first record if it is COMMITTING (perhaps a copy), else none."""
        if self.data is None or self.header is None or self.header.position <= HEADER_LENGTH:
            return b""
        record = decode_record(self.data, HEADER_LENGTH, self.size)
        return b"" if record is None or record.status != COMMITTING else record.encode()

    def first_records(self) -> Iterator[RecordSpan]:
        """Yield the first records that the header counts, up to one that is damaged."""
        for span in islice(self.counted_spans(), 1, 1 + _COPIES_MAX):
            if span.whole is None:
                return
            yield span

    def has_decision_of(self, span: RecordSpan) -> bool:
        """Return whether a decision of the other part is here, too: one of them may be a copy.

        Copies of 3.0, and of decisions that are closed in part, have another time and number.
        """
        one = span.record
        if one is None or one.status != COMMITTING:
            return False
        return any(found.status == COMMITTING for _, found in self.records_of(one.gtrid))

    def records_of(self, gtrid: bytes) -> Iterator[tuple[int, TransactionLogRecord]]:
        """Yield counted records of a transaction, each with its offset, by a search for it."""
        if self.data is None or self.header is None or not gtrid:
            return
        wanted = bytes((len(gtrid),)) + gtrid  # the last byte of a record's head, and what follows
        begin = HEADER_LENGTH
        for _ in range(_FOUND_MAX):
            at = find(self.data, wanted, begin, self.counted_end)
            if at < 0:
                return
            begin, offset = at + 1, at + 1 - RECORD_HEAD.size
            found = decode_record(self.data, offset, self.counted_end) if offset > 0 else None
            if found is not None and found.gtrid == gtrid:
                yield offset, found

    def contains_first_of(self, other: Part) -> bool:
        """Return whether this file contains the first record of the other, as a swap copies it."""
        wanted = other.first_decision()
        if not wanted or self.data is None or self.header is None:
            return False
        return find(self.data, wanted, HEADER_LENGTH, self.counted_end) >= 0


@dataclass
class DualFiles:
    """The two files of a journal, part 1 first."""

    parts: tuple[Part, Part]

    @cached_property
    def newest(self) -> Stamp | None:
        """The stamp of the newest record that a header counts."""
        stamps = [stamp(part.last) for part in self.parts if part.last is not None]
        return max(stamps, default=None)

    @property
    def data(self) -> tuple[memoryview | None, memoryview | None]:
        """The bytes of part 1 and part 2."""
        return (self.parts[0].data, self.parts[1].data)

    @property
    def counts_since_1970(self) -> bool:
        """True if any time is one that 2.1.3 and 2.1.4, which count since boot, do not write."""
        headers = [part.header.timestamp for part in self.parts if part.header is not None]
        records = [part.last.time for part in self.parts if part.last is not None]
        return max([*headers, *records], default=0) >= WALL_CLOCK_MIN

    def order(self) -> tuple[Part, Part]:
        """Return the earlier part, then the part that is in use according to the bytes."""
        return self.parts if _second_is_later(*self.parts) else self.parts[::-1]

    def of_different_times(self) -> bool:
        """Return whether the earlier part has room for the record with which the later one begins.

        The manager changes files only when a record does not fit, after it has copied the open
        decisions. Until it puts the new file in use, that one, which is the earlier, has copies
        only. Where the later one has none but copies, the record is taken to be no larger than
        others.
        """
        earlier, later = self.order()
        if earlier.header is None or later.header is None or self._has_copies_only:
            return False
        first = self._first_own
        needed = earlier.first_records() if first is None else [first]
        return earlier.header.position + max(one.length for one in needed) < earlier.size

    def do_not_follow(self) -> bool:
        """Return whether the manager cannot have changed from the earlier part to the later one.

        The record for which it changes files is the first one there that is no copy. Its process
        made it right after the last of the earlier part, or right after a start. In the first case
        what the process left open is copied.
        """
        earlier, later = self.order()
        if later.header is None or self._has_copies_only:
            return False
        start = LastStart(earlier.last_records())
        if not start.records:
            return False
        first = None if self._first_own is None else self._first_own.record
        if first is None:
            if later.content_end > HEADER_LENGTH:
                return False
            follows = not self._changed_twice(start)
        elif start.begins_anew(first):
            # A change gives its file the time after it has made that record, a first start before.
            if later.swap_defect or first.time <= later.header.timestamp:
                return False
            follows = True
        else:
            follows = start.goes_on_with(first)
        copied = all(any(later.records_of(one)) for one in start.open_decisions())
        return not (follows and copied) and not takes_numbers(earlier.counted_spans())

    def no_use_before(self) -> bool:
        """Return whether no change of files came yet: one part holds nothing, so none was rewound.

        A repair makes a file of the time 0.
        """
        headers = ((part, part.header) for part in self.parts)
        return any(
            header is not None and header.timestamp > 0 and part.content_end <= HEADER_LENGTH
            for part, header in headers
        )

    def found_closed(self, gtrid: bytes) -> bool:
        """Return whether the change of files has found the decision of a transaction closed.

        It copies what is open to the later part before it puts that one in use.
        """
        spoilt = any(part.swap_defect for part in self.parts)
        if spoilt or self._has_copies_only or self._first_own is None:
            return False
        return not any(self.order()[1].records_of(gtrid))

    def _changed_twice(self, start: LastStart) -> bool:
        """Return whether the earlier part was in use before, where the later one never was.

        The originals leave the state of a file as it is when they put it in use; our writer, which
        wipes it first, does not.
        """
        earlier, later = self.order()
        states = [part.header and part.header.state for part in (earlier, later)]
        first = next(earlier.first_records()).record
        just_put_in_use = states == [UNCLEAN_LOG_STATE, CLEAN_LOG_STATE]
        return just_put_in_use and first is not None and not start.begins_anew(first)

    @cached_property
    def _has_copies_only(self) -> bool:
        """Whether the earlier part has, as until a change puts it in use, or was never used."""
        earlier, later = self.order()
        return all(later.has_decision_of(one) for one in earlier.first_records())

    @cached_property
    def _first_own(self) -> RecordSpan | None:
        """The first record of the later part that is no copy; None if none is found."""
        earlier, later = self.order()
        own = (one for one in later.first_records() if not earlier.has_decision_of(one))
        return next(own, None)

    def made_apart(self) -> bool:
        """Return whether no change of files came yet, and the files are not of one first start.

        That makes part 2, fills it with zeros, waits a tenth of a second and makes part 1, which is
        used until it is full; a repair makes a file of the time 0.
        """
        earlier, later = self.order()
        if earlier.header is None or later.header is None:
            return False
        if earlier.swap_defect or later.swap_defect:
            return False
        apart = later.header.timestamp - earlier.header.timestamp
        # A change of files that has just begun leaves old records after the position.
        unused = earlier.content_end <= HEADER_LENGTH and earlier.header.timestamp > 0
        in_time = apart <= _MAKING_MS_MAX + earlier.size // _FILLED_PER_MS_MIN
        return unused and not (in_time and later.was_used_first())

    def records(self) -> Iterator[tuple[Part, int, TransactionLogRecord]]:
        """Yield every whole record that is not stale with its offset, the earlier part first."""
        for part in self.order():
            for span in part.spans(self.newest):
                if span.whole is not None:
                    yield part, span.offset, span.whole


def _second_is_later(one: Part, two: Part) -> bool:
    """Return whether ``two`` is in use: by what the parts hold, then by the timestamps.

    The timestamps decide, as they do for the original, unless a swap has spoilt one or they are
    equal. Then: a swap begins the later file with copies of records of the earlier one, so the
    file that contains the other's first record is the earlier; else the later last record decides,
    within one run of the writer. Where 2.1.4 has taken over from a writer with another clock,
    the spoilt timestamp is its own and so the later one.
    """
    if one.header is None or two.header is None:
        return two.header is not None
    if one.swap_defect or two.swap_defect or one.header.timestamp == two.header.timestamp:
        earlier, later = one.contains_first_of(two), two.contains_first_of(one)
        if earlier != later:
            return earlier
        if (one.last is None) != (two.last is None):
            return one.last is None
        if one.last is not None and two.last is not None and _comparable(one.last, two.last):
            return stamp(two.last) > stamp(one.last)
        if one.swap_defect != two.swap_defect:
            return two.swap_defect
    return one.header.timestamp <= two.header.timestamp


def _comparable(one: TransactionLogRecord, two: TransactionLogRecord) -> bool:
    """Return whether the records differ and their times are of one clock."""
    same_clock = (one.time < WALL_CLOCK_MIN) == (two.time < WALL_CLOCK_MIN)
    return same_clock and stamp(one) != stamp(two)
