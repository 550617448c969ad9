"""What a part of a file closes, as Arrow batches.

In: a split, and a function that opens both files. Out: batches of the table ``transactions``, and
the `Rest`. The counted records of the part must all be plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.records import Clock, Outcome
from tallystick.storage.mapped import let_go
from tallystick.systems.bitronix.columns.transactions import GtridBatches, Gtrids
from tallystick.systems.bitronix.format.layout import (
    CLOSING,
    COMMITTING,
    HEADER_LENGTH,
    split_gtrid,
)
from tallystick.systems.bitronix.read.files import DualFiles, Part
from tallystick.systems.bitronix.read.open_decisions import OpenDecisions
from tallystick.systems.bitronix.read.scan import RecordSpan, Stamp, spans_behind, stamp
from tallystick.systems.bitronix.read.search import RecordSearch
from tallystick.systems.bitronix.runs.chunk import Chunk, read_chunk, read_stale_run
from tallystick.systems.bitronix.runs.known import (
    CLOSED,
    NONE,
    STATUS,
    Effects,
    Left,
    Rest,
    heads_of,
    keys_of,
)
from tallystick.systems.protocol import Split

FIRST_GTRIDS = 1 << 10
"""Transactions at the begin of a part above which those are that surely began in it."""
LEFT_MAX = 1 << 17
"""Most transactions that a part hands on: those of all parts are in memory together."""
SETS_MAX, SERVERS_MAX, TAIL_MAX = 1 << 12, 1 << 10, 1 << 10
"""Most sets of names, server ids and spans after the counted range that it hands on."""

_LOWEST = np.iinfo(np.int64).min

Batches = Iterator[tuple[str, pa.RecordBatch]]
Tail = list[tuple[RecordSpan, bytes]]


@dataclass(slots=True)
class ClosingSplit:
    """The closing of one split."""

    opened: Callable[[], AbstractContextManager[DualFiles]]
    split: Split
    log: str
    clock: Clock
    rows: int
    _rest: Rest | None = None

    def batches(self) -> Batches:
        """Yield what the split closes; nothing where it is not plain."""
        with self.opened() as pair:
            paths = [part.path for part in pair.order()]
            number = paths.index(self.split.file)
            read = _PartRead(pair, number, self.split)
            if not read.plain:
                return
            gtrids, table = read.found.merged()
            closed = read.closed(gtrids, table)
            self._rest = read.rest(gtrids, table, closed)
            made = GtridBatches(self.log, self.clock, pair, read.found.names.sets, OpenDecisions())
            chosen = np.flatnonzero(closed)
            for begin in range(0, len(chosen) if self._rest else 0, self.rows):
                some = chosen[begin : begin + self.rows]
                of_rows = gtrids.take(pa.array(some)).cast(pa.binary())
                yield (
                    "transactions",
                    made.batch(of_rows, table.take(some, 1), np.zeros(len(some), np.int64)),
                )

    def rest(self) -> bytes | None:
        """Return what the split leaves open; None if it is not plain."""
        return None if self._rest is None else self._rest.packed()


class _PartRead:
    """The pass over one part.

    Attributes:
        plain: whether all counted records of the part are.
        found: what they come to by gtrid.
    """

    def __init__(self, pair: DualFiles, number: int, split: Split) -> None:
        self.found, self._effects = Gtrids(), Effects()
        self._pair, self._number, self._part = pair, number, pair.order()[number]
        self._servers: dict[str | None, bytes] = {}
        self._begin = max(split.begin, HEADER_LENGTH)
        self._end = min(split.end, self._part.size)
        self._records, self._records_end = 0, self._begin
        self._copies = 0
        self._tail: Tail | None = None
        header, data = self._part.header, self._part.data
        if data is not None and header is not None and header.position == self._part.counted_end:
            self._read(data)
        self.plain = self._tail is not None

    def _read(self, data: memoryview) -> None:
        stop = min(self._end, self._part.counted_end)
        while self._records_end < stop:
            let_go(data, self._records_end)
            chunk = read_chunk(data, self._records_end, stop)
            if not chunk.count:
                return
            self._take(chunk)
        self._tail = _tail(self._part, self._records_end, self._end, self._pair.newest)

    def _take(self, chunk: Chunk) -> None:
        if not self._records:
            # A change of files begins the new one with the decisions that are open, however old.
            own = chunk.columns["statuses"] != COMMITTING
            self._copies = int(own.argmax()) if own.any() else chunk.count
        self.found.add(chunk, self._number)
        self._effects.take(chunk)
        for gtrid in chunk.servers():
            self._servers.setdefault(split_gtrid(gtrid).server_id, gtrid)
        self._records += chunk.count
        self._records_end = chunk.end

    def closed(self, gtrids: pa.Array, table: Any) -> Any:
        """Return which transactions surely begin and end in the part, as far as it tells."""
        keys, known = _keys(gtrids)
        is_open = [gtrid for gtrid, (opens, _) in self._effects.items() if opens is not None]
        still = pc.is_in(gtrids, pa.array(is_open, gtrids.type)).to_numpy(zero_copy_only=False)
        closed = known & np.isin(table[STATUS], list(CLOSING)) & ~still
        if self._number or self._begin > HEADER_LENGTH:
            closed &= keys > keys[: self._copies + FIRST_GTRIDS].max(initial=_LOWEST)
        return closed

    def rest(self, gtrids: pa.Array, table: Any, closed: Any) -> Rest | None:
        """Return what is left open; None where that is too much."""
        if len(gtrids) - closed.sum() > LEFT_MAX or len(self._servers) > SERVERS_MAX:
            return None
        left = self._left(gtrids, table, ~closed)
        if self._tail is None or len(left.sets) > SETS_MAX:
            return None
        keys, _ = _keys(gtrids)
        return Rest(
            heads_of(self._pair), self._number, self._begin, self._end, self._records,
            self._records_end, [*self._servers.values()], np.sort(keys[closed]), left, self._tail,
        )  # fmt: skip

    def _left(self, gtrids: pa.Array, table: Any, chosen: Any) -> Left:
        some = gtrids.filter(pa.array(chosen)).to_pylist()
        names = self.found.names
        effects = np.full((2, len(some)), NONE)
        for row, gtrid in enumerate(some):
            if (effect := self._effects.get(gtrid)) is None:
                continue
            opens, closes = effect
            if closes is not None:
                effects[1, row] = names.number(closes)
            else:
                effects[0, row] = CLOSED if opens is None else names.number(opens)
        rows = np.concatenate([table[:, chosen], effects])
        return Left(some, rows, names.sets)


def _keys(gtrids: pa.Array) -> tuple[Any, Any]:
    _, ends, data = gtrids.buffers()
    places = np.frombuffer(ends, np.int64)[gtrids.offset :][: len(gtrids) + 1]
    return keys_of(np.frombuffer(data or b"", np.uint8)[places[0] :], places[1:] - places[0])


def _tail(part: Part, begin: int, end: int, newest: Stamp | None) -> Tail | None:
    """Return the spans after the counted range, neighbours of one kind joined.

    None where they are too many, or a reading of the whole file finds others.
    """
    assert part.data is not None  # it was read
    found: Tail = []
    search, place = RecordSearch(part.data, end - begin), begin
    fresh = begin == part.counted_end
    for span in spans_behind(part.data, begin, end, newest, search, read_stale_run, fresh=fresh):
        place = span.end
        # What follows it in the next part may be not counted, too.
        if span.outcome is Outcome.VALID and place == end < part.size:
            return None
        _join(found, span, part.data)
        if len(found) > TAIL_MAX:
            return None
    if place != end or (found and search.exhausted):
        return None
    return found


def _join(found: Tail, span: RecordSpan, data: memoryview) -> None:
    """Add a span with its newest record, or make it one with the last if both are stale."""
    newest = b""
    if span.record is not None:
        one = span.count == 1  # of several the newest is plain, and so as it was encoded
        newest = bytes(data[span.offset : span.end]) if one else span.record.encode()
    before = found[-1][0] if found else None
    if before is None or before.outcome is not Outcome.STALE or span.outcome is not Outcome.STALE:
        found.append((span, newest))
        return
    assert before.record is not None  # as every stale span has
    assert span.record is not None
    newer = stamp(span.record) > stamp(before.record)
    record, newest = (span.record, newest) if newer else (before.record, found[-1][1])
    length, count = before.length + span.length, before.count + span.count
    found[-1] = replace(before, length=length, count=count, record=record), newest
