"""The walk over the groups of one segment: which are whole, and what the other bytes are.

In: the bytes of a segment file, and what is known from outside (`Expected`). Out: `Place`
objects in order of offsets, judged by `tallystick.systems.tally.read.decision`. Linear time: a file
full of hostile headers is searched once, not once per header.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from tallystick.storage.crc import crc32
from tallystick.storage.files import Bytes
from tallystick.systems.tally.format.headers import SegmentHeader
from tallystick.systems.tally.format.layout import (
    DATA_OFFSET,
    HEADER_SIZE,
    INDEX,
    GroupHeader,
    decode_group_header,
)
from tallystick.systems.tally.read.decision import Case, Facts, decide
from tallystick.systems.tally.read.header_search import Copies

if TYPE_CHECKING:
    from tallystick.systems.tally.read.group_runs import Run


@dataclass(frozen=True, slots=True)
class Expected:
    """What is due at ``offset``: this LSN, after a header with this checksum."""

    offset: int
    lsn: int
    chain: int


@dataclass(frozen=True, slots=True)
class Place:
    """What was found where a group was due.

    ``header`` is a whole copy of the group's header, if there is one; ``end`` the offset up to
    which the judgement reaches; ``lost`` the number of acknowledged records that are not here.
    ``then`` is what is due next, None where the walk ends. A leap makes one place of many whole
    groups; ``header`` is then that of the last of them, ``run`` what it read of all.
    """

    case: Case
    offset: int
    end: int
    lsn: int
    header: GroupHeader | None = None
    reason: str = ""
    lost: int = 0
    then: Expected | None = None
    run: Run | None = None

    @property
    def count(self) -> int:
        """Records of the whole groups here."""
        if self.run is not None:
            return self.run.count
        return self.header.count if self.header is not None else 0


class Leap(Protocol):
    """Takes whole groups in a row, up to an offset, at one go; None if it cannot."""

    def __call__(self, view: SegmentView, due: Expected, to: int | None) -> Place | None: ...


@dataclass
class SegmentView:
    """The bytes of one segment whose header is whole."""

    data: Bytes
    header: SegmentHeader
    durable_lsn: int = 0
    """The highest LSN that something outside this file says was durable."""
    _copies: Copies | None = None

    def first(self) -> Expected:
        """What is due at the start of the segment."""
        return Expected(DATA_OFFSET, self.header.first_lsn, self.header.checksum())

    @cached_property
    def index(self) -> GroupHeader | None:
        """The header of the index that ends the file; None if the segment is not sealed.

        It is the trailing copy; the leading one where an earlier search of the file found it.
        """
        tail = decode_group_header(self.data, len(self.data) - HEADER_SIZE)
        if tail is not None and self._is_index(tail):
            return tail
        leads = self._copies.leads if self._copies is not None else ()
        return next((one for one in leads if self._is_index(one)), None)

    @property
    def index_whole(self) -> bool:
        """True if the index can be used."""
        index = self.index
        return index is not None and index.offset >= DATA_OFFSET and self._inner_fits(index)

    @property
    def index_damaged(self) -> bool:
        """True if there is an index of which not every byte is as it was written."""
        index = self.index
        if index is None:
            return False
        lead = bytes(self.data[index.offset : index.offset + HEADER_SIZE])
        return not self.index_whole or lead != bytes(self.data[len(self.data) - HEADER_SIZE :])

    def _is_index(self, header: GroupHeader) -> bool:
        return bool(header.flags & INDEX) and self._own(header) and header.end == len(self.data)

    def copies_from(self, offset: int) -> Copies:
        """Every whole header of this life at or behind ``offset``, found by one search.

        A walk asks for growing offsets, so what it finds first serves it to the end.
        """
        if self._copies is None or self._copies.start > offset:
            self._copies = Copies(self.data, offset, self._own)
        return self._copies

    def known_after(self, offset: int) -> int:
        """The highest LSN that anything but the bytes before ``offset`` says was durable."""
        return max(self.durable_lsn, self.copies_from(offset).mark_after(offset))

    def walk(
        self, due: Expected | None = None, *, to: int | None = None, leap: Leap | None = None
    ) -> Iterator[Place]:
        """The places from ``due`` on, up to the end of the log in this segment.

        With ``to`` the walk stops before the first place at or behind that offset. Behind a
        corrupt place it goes on with the next whole header.
        """
        next_due: Expected | None = due or self.first()
        while next_due is not None and (to is None or next_due.offset < to):
            place = (leap and leap(self, next_due, to)) or self._look(next_due)
            yield place
            next_due = place.then

    def _look(self, due: Expected) -> Place:
        header = decode_group_header(self.data, due.offset)
        if header is not None and self._fits(header, due.offset):
            data = self.data
            start = due.offset + HEADER_SIZE
            end = header.end - HEADER_SIZE
            if (
                header.first_lsn == due.lsn
                and header.chain == due.chain
                and data[end : header.end] == data[due.offset : start]
                and crc32(data[start:end]) == header.inner_crc
            ):
                return Place(
                    Case.VALID, due.offset, header.end, due.lsn, header, then=_behind(header)
                )
        return self._judge(due)

    def _judge(self, due: Expected) -> Place:
        """The slow way, for a place where not everything is as it should be."""
        lead = decode_group_header(self.data, due.offset)
        if lead is not None and not self._fits(lead, due.offset):
            lead = None
        trail = self._trailing(due, lead)
        header = lead or trail
        facts = Facts(
            lead=lead is not None,
            trail=trail is not None,
            inner=header is not None and self._inner_fits(header),
            follows=header is not None and (header.first_lsn, header.chain) == (due.lsn, due.chain),
            known=self.known_after(due.offset) >= due.lsn,
        )
        case = decide(facts)
        place = Place(case, due.offset, due.offset, due.lsn, header, _reason(facts))
        if case is Case.CORRUPT:
            return self._damage(place, facts)
        if header is None or case is Case.END:
            return place
        place = replace(place, end=header.end)
        return replace(place, then=_behind(header)) if case is Case.REPAIRED else place

    def _damage(self, place: Place, facts: Facts) -> Place:
        """A corrupt place with what is lost there, and where the walk goes on."""
        header = place.header
        if header is not None and facts.follows:
            return replace(place, end=header.end, lost=header.count, then=_behind(header))
        if header is not None and facts.inner and header.first_lsn > place.lsn:
            return replace(place, lost=header.first_lsn - place.lsn, then=_at(header))
        begin = place.offset + 1 if header is None else header.end
        follower = self.copies_from(place.offset).lead_from(begin, place.lsn)
        if follower is None:
            lost = self.known_after(place.offset) - place.lsn + 1
            return replace(place, end=len(self.data), lost=lost)
        lost = follower.first_lsn - place.lsn
        return replace(place, end=follower.offset, lost=lost, then=_at(follower))

    def _fits(self, header: GroupHeader, offset: int) -> bool:
        return (
            header.offset == offset
            and self._own(header)
            and header.end <= len(self.data)
            and header.length % self.header.sector_size == 0
            and not header.flags & INDEX
        )

    def _own(self, header: GroupHeader) -> bool:
        return header.segment == self.header.number and header.tag == self.header.identity[:8]

    def _trailing(self, due: Expected, lead: GroupHeader | None) -> GroupHeader | None:
        """The whole trailing header of the group at this place."""
        if lead is not None:
            twin = decode_group_header(self.data, lead.end - HEADER_SIZE)
            return twin if twin == lead else None
        twin = self.copies_from(due.offset).trails.get(due.offset)
        return twin if twin is not None and self._fits(twin, due.offset) else None

    def _inner_fits(self, header: GroupHeader) -> bool:
        inner = self.data[header.offset + HEADER_SIZE : header.end - HEADER_SIZE]
        return bool(crc32(inner) == header.inner_crc)

    def inner(self, header: GroupHeader) -> Bytes:
        """The stored bytes of a group, as a view."""
        start = header.offset + HEADER_SIZE
        return self.data[start : start + header.stored]


def _behind(header: GroupHeader) -> Expected:
    return Expected(header.end, header.last_lsn + 1, header.checksum)


def _at(header: GroupHeader) -> Expected:
    return Expected(header.offset, header.first_lsn, header.chain)


def _reason(facts: Facts) -> str:
    if not facts.lead and not facts.trail:
        return "no whole header"
    if not facts.inner:
        return "the checksum of its content does not fit"
    if not facts.follows:
        return "it does not follow the group before it"
    return "the leading header is damaged" if not facts.lead else "the trailing header is damaged"
