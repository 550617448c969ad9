"""Walk the groups of one segment: which are whole, and what the other bytes are.

In: the bytes of a segment file, and what other files prove. Out: `Place` objects in order of
offsets, judged by `tallystick.systems.tally.read.decision`. Linear time: a file full of hostile
headers is searched once, not once per header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from tallystick.storage.crc import crc32
from tallystick.storage.files import Bytes
from tallystick.storage.mapped import NEAR, let_go
from tallystick.systems.tally.format.headers import SegmentHeader
from tallystick.systems.tally.format.layout import (
    AES_GCM,
    DATA_OFFSET,
    HEADER_SIZE,
    INDEX,
    GroupHeader,
    decode_group_header,
)
from tallystick.systems.tally.read.decision import Case, Facts, decide
from tallystick.systems.tally.read.header_search import HeaderCopies

RAW_MIN = 64 << 20
"""Bytes that a payload may have unpacked although the file is shorter: it may have been cut."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The group that must follow at ``offset``: its first LSN, and its chain value."""

    offset: int
    lsn: int
    chain: int

    @classmethod
    def first_of(cls, segment: SegmentHeader) -> Expected:
        """Return what is due at the start of a segment."""
        return cls(DATA_OFFSET, segment.first_lsn, segment.checksum())

    @classmethod
    def at(cls, header: GroupHeader) -> Expected:
        """Return what was due where a whole group is."""
        return cls(header.offset, header.first_lsn, header.chain)

    @classmethod
    def after(cls, header: GroupHeader) -> Expected:
        """Return what is due after a whole group."""
        return cls(header.end, header.last_lsn + 1, header.checksum)


@dataclass(frozen=True, slots=True)
class Place:
    """What was found where a group was due.

    Attributes:
        case: the judgement of the decision table.
        offset: where the group was due.
        end: offset up to which the judgement reaches.
        lsn: the LSN that was due.
        header: a whole copy of the group's header, if there is one.
        reason: what is wrong, in words.
        lost: number of acknowledged records that are missing or damaged here.
        then: what is due next; None where the walk ends.
    """

    case: Case
    offset: int
    end: int
    lsn: int
    header: GroupHeader | None = None
    reason: str = ""
    lost: int = 0
    then: Expected | None = None

    @property
    def is_hole(self) -> bool:
        """True where no header tells which groups stood before the whole one that follows.

        What is gone at the end of a segment is no hole: the next one, or the control block, tells.
        """
        told = self.header is not None and self.header.first_lsn == self.lsn
        return self.case is Case.CORRUPT and self.then is not None and not told

    @property
    def count(self) -> int:
        """Number of records of the whole groups here."""
        return self.header.count if self.header is not None else 0

    @property
    def count_in_clear(self) -> int:
        """Number of records of the whole groups here that are not encrypted."""
        sealed = self.header is not None and self.header.flags & AES_GCM
        return 0 if sealed else self.count

    def index_entries(self) -> list[tuple[int, int, int]]:
        """Return offset, first LSN and time of each whole group here."""
        header = self.header
        assert header is not None
        return [(header.offset, header.first_lsn, header.time_us)]


@dataclass
class SegmentView:
    """The bytes of one segment whose header is whole.

    Attributes:
        data: its bytes.
        header: its header.
        durable_lsn: every record up to here was durable, as other files prove.
        written: from this offset on all bytes are known to be zero; None if nothing is known.
    """

    data: Bytes
    header: SegmentHeader
    durable_lsn: int = 0
    written: int | None = None
    _copies: HeaderCopies | None = None
    _tag: bytes = field(init=False)
    _raw_max: int = field(init=False)

    def __post_init__(self) -> None:
        self._tag = self.header.tag
        self._raw_max = min(self.header.size, max(len(self.data), RAW_MIN))

    @cached_property
    def index(self) -> GroupHeader | None:
        """The header of the index that ends the file; None if the segment is not sealed.

        It is the trailing copy; the leading one where an earlier search of the file found it.
        """
        tail = decode_group_header(self.data, len(self.data) - HEADER_SIZE)
        if tail is not None and self._is_index(tail):
            return tail
        leads = self._copies.leads if self._copies is not None else ()
        # Only copies that a search has found anyway: none is begun for this.
        return next((one for one in leads if self._is_index(one)), None)

    @property
    def index_whole(self) -> bool:
        """True if the index can be used."""
        index = self.index
        return index is not None and index.offset >= DATA_OFFSET and self._payload_fits(index)

    @property
    def index_damaged(self) -> bool:
        """True if there is an index of which not every byte is as it was written."""
        index = self.index
        if index is None:
            return False
        lead = bytes(self.data[index.offset : index.offset + HEADER_SIZE])
        return not self.index_whole or lead != bytes(self.data[len(self.data) - HEADER_SIZE :])

    def _is_index(self, header: GroupHeader) -> bool:
        return bool(header.flags & INDEX) and self.is_own(header) and header.end == len(self.data)

    def copies_from(self, offset: int) -> HeaderCopies:
        """Return every whole header of this segment number at or after ``offset``.

        A walk asks for growing offsets, so one search serves it to the end.
        """
        if self._copies is None or self._copies.start > offset:
            self._copies = HeaderCopies(self.data, offset, self.is_own, self.written)
        return self._copies

    def known_after(self, offset: int) -> int:
        """Return the highest LSN that other files, or headers from ``offset`` on, prove durable."""
        return max(self.durable_lsn, self.copies_from(offset).durable_mark_from(offset))

    def walk(
        self,
        due: Expected | None = None,
        *,
        stop: int | None = None,
        read_run: ReadRun | None = None,
    ) -> Iterator[Place]:
        """Yield the places from ``due`` on, up to the end of the log in this segment.

        The walk ends before the first place at or after ``stop``. After a corrupt place it goes on
        with the next whole header. ``read_run`` is asked first for what is due.
        """
        next_due: Expected | None = due or Expected.first_of(self.header)
        kept = 0
        while next_due is not None and (stop is None or next_due.offset < stop):
            if next_due.offset >= kept and isinstance(self.data, memoryview):
                let_go(self.data, next_due.offset)
                kept = next_due.offset + NEAR
            place = (read_run and read_run(self, next_due, stop)) or self.look(next_due)
            yield place
            next_due = place.then

    def look(self, due: Expected) -> Place:
        """Return what is where a group is due."""
        header = decode_group_header(self.data, due.offset)
        if header is not None and self._fits(header, due.offset):
            data = self.data
            start = due.offset + HEADER_SIZE
            end = header.end - HEADER_SIZE
            if (
                header.first_lsn == due.lsn
                and header.chain == due.chain
                and data[end : header.end] == data[due.offset : start]
                and crc32(data[start:end]) == header.payload_crc
            ):
                return Place(
                    Case.VALID, due.offset, header.end, due.lsn, header, then=Expected.after(header)
                )
        return self._judge(due)

    def _judge(self, due: Expected) -> Place:
        """Judge a place where not everything is as it should be by the decision table."""
        lead = decode_group_header(self.data, due.offset)
        if lead is not None and not self._fits(lead, due.offset):
            lead = None
        trail = self._trailing(due, lead)
        header = lead or trail
        facts = Facts(
            lead=lead is not None,
            trail=trail is not None,
            inner=header is not None and self._payload_fits(header),
            follows=header is not None and (header.first_lsn, header.chain) == (due.lsn, due.chain),
            # A later header that says it was durable proves that the group was whole once: it is
            # damaged then, and not the torn end of the log.
            known=self.known_after(due.offset) >= due.lsn,
        )
        case = decide(facts)
        place = Place(case, due.offset, due.offset, due.lsn, header, _reason(facts))
        if case is Case.CORRUPT:
            return self._damage(place, facts)
        if header is None or case is Case.END:
            return place
        place = replace(place, end=header.end)
        return replace(place, then=Expected.after(header)) if case is Case.REPAIRED else place

    def _damage(self, place: Place, facts: Facts) -> Place:
        """Return a corrupt place with what is lost there, and where the walk goes on."""
        header = place.header
        if header is not None and facts.follows:
            return replace(place, end=header.end, lost=header.count, then=Expected.after(header))
        # A whole group, and one of later records: what should stand between is lost, and it is read
        # next.
        if header is not None and facts.inner and header.first_lsn > place.lsn:
            return replace(place, lost=header.first_lsn - place.lsn, then=Expected.at(header))
        begin = place.offset + 1 if header is None else header.end
        follower = self.copies_from(place.offset).lead_from(begin, place.lsn)
        if follower is None:
            lost = self.known_after(place.offset) - place.lsn + 1
            return replace(place, end=len(self.data), lost=lost)
        lost = follower.first_lsn - place.lsn
        return replace(place, end=follower.offset, lost=lost, then=Expected.at(follower))

    def _fits(self, header: GroupHeader, offset: int) -> bool:
        return (
            header.offset == offset
            and self.is_own(header)
            and header.end <= len(self.data)
            and header.length % self.header.sector_size == 0
            and not header.flags & INDEX
        )

    def is_own(self, header: GroupHeader) -> bool:
        """Tell whether a writer of this segment can have written the header."""
        return (
            header.segment == self.header.number
            and header.tag == self._tag
            and header.raw <= self._raw_max  # no payload is larger before it is packed
        )

    def _trailing(self, due: Expected, lead: GroupHeader | None) -> GroupHeader | None:
        """Return the whole trailing header of the group at this place."""
        if lead is not None:
            twin = decode_group_header(self.data, lead.end - HEADER_SIZE)
            return twin if twin == lead else None
        twin = self.copies_from(due.offset).trails.get(due.offset)
        return twin if twin is not None and self._fits(twin, due.offset) else None

    def _payload_fits(self, header: GroupHeader) -> bool:
        content = self.data[header.offset + HEADER_SIZE : header.end - HEADER_SIZE]
        return bool(crc32(content) == header.payload_crc)

    def payload(self, header: GroupHeader) -> Bytes:
        """Return the stored payload of a group, without copying."""
        start = header.offset + HEADER_SIZE
        return self.data[start : start + header.stored]


ReadRun: TypeAlias = Callable[[SegmentView, Expected, int | None], Place | None]
"""Returns a place with whole groups in a row that begin before an offset; None if the group that is
due has to be read by itself."""


def _reason(facts: Facts) -> str:
    if not facts.lead and not facts.trail:
        return "no whole header"
    if not facts.inner:
        return "the checksum of its content does not fit"
    if not facts.follows:
        return "it does not follow the group before it"
    return "the leading header is damaged" if not facts.lead else "the trailing header is damaged"
