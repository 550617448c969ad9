"""What a part of a file has read of it, packed; and the pieces of a journal that come from parts.

In: a part whose counted records are all plain. Out: as bytes how many they are, what they leave of
transactions that the part did not close, and the spans after the counted range. `KnownParts` gives
them as pieces, where the parts tile the files as they are now, and no part closed a transaction
that another one has records of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from tallystick.arrow.neighbours import Bits, Longs
from tallystick.records import Outcome
from tallystick.systems.bitronix.format.layout import (
    CLOSING,
    COMMITTED,
    COMMITTING,
    GTRID_TAIL,
    HEADER_LENGTH,
)
from tallystick.systems.bitronix.format.record import decode_record
from tallystick.systems.bitronix.read.files import DualFiles, Part
from tallystick.systems.bitronix.read.open_decisions import OpenDecisions
from tallystick.systems.bitronix.read.scan import RecordSpan, Stamp, header_span
from tallystick.systems.bitronix.runs.chunk import Chunk
from tallystick.systems.rests import items, longs, packed, require, unpacked

FIRST_TIME, STATUS, TIME, LAST, DECISION, RECORDS, BYTES, FILES, NAMES = range(9)
"""Rows of a table of gtrids: status, time and place of the last record; `DECISION` is the place of
the last COMMITTING (`NONE`: none), `FILES` has a bit per file, `NAMES` is the number of a set."""
OPENS, CLOSES = NAMES + 1, NAMES + 2
"""Two more rows of what is left: see `Effects`; numbers of sets, `NONE` or `CLOSED`."""
FILE = 1 << 56
"""A place is an offset, and this times the number of the file in the order of both."""
NONE, CLOSED = -1, -2
_TIME_SIZE = 8
_TIME_BITS = 32

_Names = tuple[str, ...]


class Effects(dict[bytes, tuple[_Names | None, _Names | None]]):
    """What records come to for decisions, whatever is open before them.

    By gtrid the names for which its decision is open then, and those that are taken off a decision
    that was open before; None for nothing. Where both are None, none is open.
    """

    def take(self, chunk: Chunk) -> None:
        """Take the next records."""
        for gtrid in chunk.surely_closed():
            self[gtrid] = None, None
        for status, gtrid, names in chunk.decisions():
            self._decide(status, gtrid, names)

    def _decide(self, status: int, gtrid: bytes, names: _Names) -> None:
        if status == COMMITTING:
            self[gtrid] = names, None
        elif status in CLOSING and gtrid not in self:
            self[gtrid] = None, names
        elif status in CLOSING:
            opens, closes = self[gtrid]
            if opens is not None:
                self[gtrid] = tuple(one for one in opens if one not in names) or None, None
            elif closes is not None:
                # One after the other leaves of any names what all of them together do.
                self[gtrid] = None, (*closes, *names)


class Left(NamedTuple):
    """The transactions that a part did not close.

    Attributes:
        gtrids: of each.
        table: their rows, those of a table of gtrids, `OPENS` and `CLOSES`.
        sets: the sets of names, by number.
    """

    gtrids: list[bytes]
    table: Any
    sets: list[_Names]

    def apply(self, found: OpenDecisions) -> None:
        """Apply their records to the open decisions."""
        opens, closes = self.table[OPENS], self.table[CLOSES]
        for row in np.flatnonzero((opens != NONE) | (closes != NONE)).tolist():
            gtrid = self.gtrids[row]
            if closes[row] != NONE:
                found.decide(COMMITTED, gtrid, self.sets[closes[row]])
            elif opens[row] == CLOSED:
                found.pop(gtrid, None)
            else:
                found[gtrid] = self.sets[opens[row]]


class Rest(NamedTuple):
    """What a part of a file has read of it.

    Attributes:
        heads: path, size and header of part 1 and of part 2.
        number: that of the file in the order of both.
        begin, end: of the part; the first one begins after the header.
        records: how many counted records it has.
        records_end: where they end.
        servers: a gtrid of each server id.
        closed: the keys of the transactions that it gave, ascending.
        left: all others.
        tail: its spans after the counted range, with the bytes of the newest record of each.
    """

    heads: list[Any]
    number: int
    begin: int
    end: int
    records: int
    records_end: int
    servers: list[bytes]
    closed: Longs
    left: Left
    tail: list[tuple[RecordSpan, bytes]]

    def packed(self) -> bytes:
        """Return it as bytes."""
        left = self.left
        ends = np.cumsum([len(one) for one in left.gtrids], dtype=np.int64)
        # Differences: numbers that follow each other take next to no space once compressed.
        keys = np.diff(self.closed, prepend=np.int64(0))
        numbers = (self.number, self.begin, self.end, self.records, self.records_end)
        return packed(
            (
                self.heads, numbers, self.servers, keys, b"".join(left.gtrids), ends,
                np.ascontiguousarray(left.table), left.sets, [_item(*one) for one in self.tail],
            )
        )  # fmt: skip

    @classmethod
    def built(cls, value: Any) -> Self:
        """Return the rest whose value was packed, for `unpacked`."""
        heads, numbers, servers, keys, data, ends, table, sets, tail = items(
            value, list, list, list, bytes, bytes, bytes, bytes, list, list
        )
        for head in heads:
            items(head, str, int, bytes)
        items(servers, *[bytes] * len(servers))
        spans = [_tail_span(*items(one, int, int, str, str, str, int, bytes)) for one in tail]
        names = [tuple(items(one, *[str] * len(one))) for one in sets]
        stops = longs(ends).tolist()
        starts = [0, *stops[:-1]]
        gtrids = [data[start:stop] for start, stop in zip(starts, stops, strict=False)]
        if b"".join(gtrids) != data:
            raise ValueError("gtrids do not follow each other")
        rows = longs(table).reshape(CLOSES + 1, len(gtrids))
        number, begin, end, records, records_end = items(numbers, int, int, int, int, int)
        _require_possible(rows, number, len(names))
        left, closed = Left(gtrids, rows, names), np.cumsum(longs(keys))
        return cls(heads, number, begin, end, records, records_end, servers, closed, left, spans)


def _require_possible(rows: Longs, number: int, sets: int) -> None:
    low = np.array([0, CLOSED, NONE])[:, None]
    numbers = rows[[NAMES, OPENS, CLOSES]]
    if number not in (0, 1) or (numbers < low).any() or (numbers >= sets).any():
        raise ValueError("numbers of nothing that is there")
    places = rows[[LAST, DECISION]]
    if (rows[FILES] != 1 << number).any() or (places[places != NONE] // FILE != number).any():
        raise ValueError("places in another file")


def heads_of(pair: DualFiles) -> list[Any]:
    """Return path, size and header of part 1 and part 2, as a rest has them."""
    return [
        [part.path or "", part.size, bytes((part.data or b"")[:HEADER_LENGTH])]
        for part in pair.parts
    ]


def keys_of(data: Any, ends: Longs) -> tuple[Longs, Bits]:
    """Return the keys of gtrids that follow each other in ``data``, and which of them have one.

    A key is made of time and number at the end of a gtrid: two gtrids that are alike have the same.
    """
    sizes = np.diff(ends, prepend=0)
    known = sizes >= GTRID_TAIL.size
    begins = ends[known] - GTRID_TAIL.size
    tails = data[begins[:, None] + np.arange(GTRID_TAIL.size)]
    times = np.ascontiguousarray(tails[:, :_TIME_SIZE]).view(">i8")[:, 0].astype(np.int64)
    numbers = np.ascontiguousarray(tails[:, _TIME_SIZE:]).view(">u4")[:, 0].astype(np.int64)
    keys = np.zeros(len(ends), np.int64)
    keys[known] = (times << _TIME_BITS) | numbers
    return keys, known


@dataclass(frozen=True)
class KnownRecords:
    """The counted records of a part: what is asked of a chunk, and what they leave.

    Attributes:
        base: the offset of the first one.
        end: the offset after the last one.
        count: how many there are.
        left: the transactions that the part did not close.
    """

    base: int
    end: int
    count: int
    left: Left
    _servers: list[bytes]

    def servers(self) -> list[bytes]:
        """Return a gtrid of each server id."""
        return self._servers

    def decide(self, found: OpenDecisions) -> None:
        """Apply the records to the open decisions."""
        self.left.apply(found)


class KnownParts:
    """The files of a journal by what their parts have read.

    Args:
        rests: those of the parts of each file, by the number of the file.
    """

    def __init__(self, rests: Mapping[int, Sequence[Rest]]) -> None:
        self._rests = rests

    @classmethod
    def of(cls, rests: Iterable[bytes], pair: DualFiles) -> Self:
        """Return the files by the rests of all parts, those of a file in its order.

        Raises:
            NotClosedInPartsError: the whole log has to be read.
        """
        found = [unpacked(one, Rest.built) for one in rests]
        heads = heads_of(pair)
        require(all(one.heads == heads for one in found), "a file has changed")
        by_file = {}
        for number, part in enumerate(pair.order()):
            some = by_file[part.number] = [one for one in found if one.number == number]
            edges = [HEADER_LENGTH, *(one.end for one in some)]
            begins = [*(one.begin for one in some), part.size if part.data else edges[-1]]
            require(edges == begins, "two parts do not follow each other")
        _require_apart(found)
        return cls(by_file)

    def pieces(self, part: Part, newest: Stamp | None) -> Iterator[RecordSpan | KnownRecords]:
        """Yield the pieces of a file, as `runs.pieces.pieces` does; the records of a part are one.

        Args:
            part: the file.
            newest: told by the parts already.
        """
        del newest
        if part.data is None or not part.size:
            return
        yield header_span(part.data)
        for rest in self._rests[part.number]:
            if rest.records:
                yield KnownRecords(
                    rest.begin, rest.records_end, rest.records, rest.left, rest.servers
                )
            for span, _ in rest.tail:
                yield span

    def reached_pieces(
        self, part: Part, newest: Stamp | None
    ) -> Iterator[tuple[RecordSpan | KnownRecords, bool]]:
        """Yield the pieces of a file, as `engine.reached.reached_pieces` does."""
        for piece in self.pieces(part, newest):
            yield piece, isinstance(piece, KnownRecords)


def _item(span: RecordSpan, newest: bytes) -> tuple[int, int, str, str, str, int, bytes]:
    kind = span.outcome.value, span.what, span.reason
    return span.offset, span.length, *kind, span.count, newest


def _tail_span(
    offset: int, length: int, outcome: str, what: str, reason: str, count: int, newest: bytes
) -> tuple[RecordSpan, bytes]:
    record = decode_record(memoryview(newest), 0, len(newest))
    if bool(newest) is not (record is not None):
        raise ValueError("a record that is none")
    kind = Outcome(outcome), what, reason
    return RecordSpan(offset, length, *kind, record, counted=False, count=count), newest


def _require_apart(rests: Sequence[Rest]) -> None:
    """Refuse transactions that a part closed and another one has records of, too."""
    ordered = sorted((one.closed for one in rests if len(one.closed)), key=lambda one: one[0])
    if any(one[-1] >= other[0] for one, other in pairwise(ordered)):
        every = np.sort(np.concatenate(ordered))
        require(bool((every[1:] != every[:-1]).all()), "a transaction ends in two parts")
    left = np.concatenate([_left_keys(one) for one in rests] or [np.empty(0, np.int64)])
    for closed in ordered:
        places = np.minimum(np.searchsorted(closed, left), len(closed) - 1)
        require(not (closed[places] == left).any(), "a transaction that a part closed goes on")


def _left_keys(rest: Rest) -> Longs:
    behind = (span.whole for span, _ in rest.tail)
    gtrids = [*rest.left.gtrids, *(one.gtrid for one in behind if one is not None)]
    data = np.frombuffer(b"".join(gtrids), np.uint8)
    keys, known = keys_of(data, np.cumsum([len(one) for one in gtrids], dtype=np.int64))
    found: Longs = keys[known]
    return found
