"""Close transactions and changes of a log split by split, and what no split closes at the end.

In: records of a split in log order; later the rests of all splits. Out: `Transaction` and `Change`
objects. A journal's prepare and commit records count the transaction's elements by segment, so a
split knows whether it holds all of them. Everything else (decisions, entries, rollbacks, what
crosses an edge) is handed on without the bodies that no row needs. Memory of a split grows with
what it hands on; that of the fold with the same of all splits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from tallystick.errors import TallystickError
from tallystick.records import Change, Kind, Outcome, Record, Transaction
from tallystick.systems.rests import items, packed, require
from tallystick.systems.tally.codes import fatal
from tallystick.systems.tally.format.layout import DATA_OFFSET, LENGTH_MAX, SYSTEM_NAME
from tallystick.systems.tally.read.changes import ELEMENTS, ChangeFeed
from tallystick.systems.tally.read.files import Catalog
from tallystick.systems.tally.read.transactions import JOURNAL, TransactionTable

_ENDINGS = frozenset({"prepare", "commit", "rollback"})
_ENTRIES = frozenset({"persisting", "persisted", "discard"})
_HANDED = _ENTRIES | {"note", "decision", "finish", "heuristic", "settle"}
_NEEDED_ATTRIBUTES = {
    "extra": bytes, "state": str, "outcome": str, "reference": str, "pairs": list, "segment": int,
    "table": int,
}  # fmt: skip
"""Attributes of records that rows need, and their types."""
_WITH_BODY = frozenset({Kind.ADD, Kind.UPDATE})

_OPTIONAL_INT, _OPTIONAL_BYTES = int | None, bytes | None
_HANDED_TYPES = (
    str, _OPTIONAL_INT, _OPTIONAL_INT, _OPTIONAL_INT, _OPTIONAL_INT, _OPTIONAL_BYTES, _OPTIONAL_INT,
    _OPTIONAL_BYTES, list, str, int, dict, int, _OPTIONAL_BYTES,
)  # fmt: skip
"""The types of the items of a packed `HandedRecord`."""

Closed = Transaction | Change
Due = tuple[int, int, int]
"""Offset, LSN and chain of a group that is due."""
Runs = list[tuple[int, int]]
"""First and last of numbers without gaps, in ascending order."""


class HandedRecord(NamedTuple):
    """A record that a split hands on, with what rows need of it; ``size`` is that of its body."""

    type: str
    sequence: int | None
    time: int | None
    transaction: int | None
    record_id: int | None
    gtrid: bytes | None
    format_id: int | None
    bqual: bytes | None
    resources: tuple[str, ...]
    file: str
    offset: int
    attributes: dict[str, Any]
    size: int
    body: bytes | None

    @classmethod
    def of(cls, value: Any) -> HandedRecord:
        """Return a record of its packed items.

        Raises:
            TypeError: they are not those of a record.
            ValueError: they are none that a split hands on.
        """
        one = cls(*items(value, *_HANDED_TYPES))
        attributes = one.attributes
        items([*attributes.values()], *(_NEEDED_ATTRIBUTES[name] for name in attributes))
        for pair in attributes.get("pairs", ()):
            items(pair, int, int)
        if one.type in ELEMENTS and "segment" not in attributes:
            raise ValueError("an element without its segment")
        if not 0 <= one.size <= LENGTH_MAX:
            raise ValueError("a body of an impossible size")
        return one._replace(resources=tuple(items(value[8], *[str] * len(value[8]))))

    def record(self) -> Record:
        """Return the record; a body that was left out is zeros."""
        return Record(
            SYSTEM_NAME, self.file, self.offset, self.size, Outcome.VALID, Kind.UNKNOWN, self.type,
            self.sequence, self.time, self.transaction, self.format_id, self.gtrid, self.bqual,
            self.resources, self.record_id, bytes(self.size) if self.body is None else self.body,
            self.attributes,
        )  # fmt: skip


def _handed(record: Record, *, body: bool) -> HandedRecord:
    attributes = record.attributes
    needed = {name: attributes[name] for name in _NEEDED_ATTRIBUTES if name in attributes}
    data = record.body or b""
    return HandedRecord(
        record.type, record.sequence, record.time, record.transaction, record.record_id,
        record.gtrid, record.format_id, record.bqual, record.resources, record.file, record.offset,
        needed, len(data), data if body and record.kind in _WITH_BODY else None,
    )  # fmt: skip


class Edges(NamedTuple):
    """Where the walk of a split began, and what was due where it ended."""

    segment: int
    begin: Due
    end: Due


class Rest(NamedTuple):
    """What a split leaves open.

    Attributes:
        edges: the place of the split in the chain of groups.
        closed: the numbers of the transactions that the split has closed.
        records: what it hands on, in the order of the log for each transaction.
        counts: how many records it has, and how many of them are in clear text; -1 for both where
            something about its groups has to be said.
    """

    edges: Edges
    closed: Runs
    records: list[HandedRecord]
    counts: tuple[int, int]

    def packed(self) -> bytes:
        """Return the rest as bytes."""
        return packed((self.edges, self.closed, self.records, self.counts))

    @classmethod
    def built(cls, value: Any) -> Rest:
        """Return the rest whose value was packed, for `unpacked`."""
        edges, closed, records, counts = items(value, list, list, list, list)
        segment, *dues = items(edges, int, list, list)
        begin, end = (tuple(items(due, int, int, int)) for due in dues)
        runs = [(first, last) for first, last in (items(run, int, int) for run in closed)]
        handed, (count, clear) = [HandedRecord.of(one) for one in records], items(counts, int, int)
        return cls(Edges(segment, begin, end), runs, handed, (count, clear))


class NotPlainError(TallystickError):
    """A split holds what only a reading of the whole log can judge."""


def runs_of(numbers: Iterable[int]) -> Runs:
    """Return ascending numbers as runs."""
    runs: Runs = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


class SplitCloser:
    """Closes what begins and ends in the split of a segment."""

    def __init__(self, log: str, segment: int) -> None:
        self._segment = segment
        self._table = TransactionTable(log, {}, lambda _lsn, _one: None)
        self._feed = ChangeFeed(log, ())
        self._open: dict[int, list[Record]] = {}
        self._closed: set[int] = set()
        self._handed: list[HandedRecord] = []

    @property
    def begun(self) -> Collection[int]:
        """Transactions that have begun here and not ended."""
        return self._open.keys()

    def take(self, records: Iterable[Record]) -> Iterator[Closed]:
        """Yield what these records close.

        Raises:
            NotPlainError: a record has another form than writers give it.
        """
        for record in records:
            number = record.transaction
            if record.outcome is not Outcome.VALID:
                if record.outcome is Outcome.CORRUPT:
                    raise _not_plain(record)
            elif number is None:
                yield from self._loose(record)
            elif record.type not in JOURNAL or "malformed" in record.attributes:
                raise _not_plain(record)
            else:
                self._open.setdefault(number, []).append(record)
                if record.type in ("commit", "rollback"):
                    yield from self._end(number)

    def _loose(self, record: Record) -> Iterator[Closed]:
        if record.gtrid is not None or record.type in _ENTRIES:
            if record.type not in _HANDED or "malformed" in record.attributes:
                raise _not_plain(record)
            self._handed.append(_handed(record, body=False))
        elif record.type in _ENDINGS or record.kind is Kind.UNKNOWN:
            raise _not_plain(record)
        else:
            yield from self._feed.take((record,))

    def _end(self, number: int) -> Iterator[Closed]:
        records = self._open.pop(number)
        if not self._is_whole(records):
            # A rollback becomes a row without its changes, so no row needs the bodies.
            body = records[-1].type == "commit"
            self._handed += (_handed(one, body=body) for one in records)
            return
        self._closed.add(number)
        for record in records:
            if (ended := self._table.take(record)) is not None:
                yield ended
            yield from self._feed.take((record,))

    def _is_whole(self, records: list[Record]) -> bool:
        """Return True if prepare and commit records count the elements that are here."""
        if records[-1].type != "commit":
            return False  # it counts nothing
        elements = 0
        for record in records:
            if record.type in ELEMENTS:
                elements += 1
            elif record.attributes["pairs"] != [[self._segment, elements]]:
                return False
        return True

    def close(self, numbers: Iterable[int] = ()) -> tuple[Runs, list[HandedRecord]]:
        """Return the numbers of closed transactions, with further ones, and what is handed on."""
        left = (_handed(one, body=True) for records in self._open.values() for one in records)
        return runs_of(sorted(self._closed.union(numbers))), [*self._handed, *left]


def _not_plain(record: Record) -> NotPlainError:
    return NotPlainError(
        f"a record of the type {record.type} has another form than writers give it",
        file=record.file, offset=record.offset,
    )  # fmt: skip


# -- the rests of all splits -----------------------------------------------------------------


def closed_rests(catalog: Catalog, log: str, rests: Sequence[Rest]) -> Iterator[Closed]:
    """Yield what no split closed alone; rests are in log order.

    Raises:
        NotClosedInPartsError: before anything else, if the whole log has to be read.
    """
    require_plain(catalog, rests)
    table = TransactionTable(log, {}, lambda _lsn, _one: None)
    feed = ChangeFeed(log, ())
    for record in (one.record() for rest in rests for one in rest.records):
        if (ended := table.take(record)) is not None:
            yield ended
        yield from feed.take((record,))
    yield from table.kept


def require_plain(catalog: Catalog, rests: Sequence[Rest]) -> None:
    """Check that splits are all of a log that lacks nothing, heads of files and elements included.

    Raises:
        NotClosedInPartsError: the whole log has to be read.
    """
    _require_chain(catalog, [rest.edges for rest in rests])
    _require_whole(catalog, rests)


def _require_chain(catalog: Catalog, edges: Sequence[Edges]) -> None:
    """Refuse unless the splits are one chain through all segments of a log without damage."""
    require(catalog.control is not None and not catalog.missing, "files are missing")
    require(not fatal(catalog.findings), "heads are damaged")
    live = catalog.live_headers
    headers = {header.number: header for header in live}
    segments = list(dict.fromkeys(one.segment for one in edges))
    require(segments == list(headers) and len(live) == len(headers), "segments have changed")
    first = catalog.control.first_segment if catalog.control is not None else 0
    require(min(headers, default=first) <= first, "the first segment is missing")
    before: Edges | None = None
    for one in edges:
        header = headers[one.segment]
        start = DATA_OFFSET, header.first_lsn, header.checksum()
        if before is not None and before.segment == one.segment:
            start = before.end
        elif before is not None:
            continued = header.previous_end, header.first_lsn, header.chain
            follows = header.previous == before.segment and continued == before.end
            require(follows, "a segment does not follow the one before it")
        require(one.begin == start, "a split does not follow the one before it")
        before = one


def _require_whole(catalog: Catalog, rests: Iterable[Rest]) -> None:
    """Refuse if a transaction lacks elements, or a number stands for two that cannot be told."""
    first_segment = catalog.control.first_segment if catalog.control is not None else 0
    counts: dict[int, Counter[int]] = {}
    for rest in rests:
        # Before the records of this split: what is open from the splits before it cannot have begun
        # and ended in here, unless another transaction has the same number.
        require(not any(_has(rest.closed, one) for one in counts), "a number is used twice")
        for record in rest.records:
            number = record.transaction
            if number is None:
                continue
            have = counts.setdefault(number, Counter())
            if record.type in ELEMENTS:
                have[record.attributes["segment"]] += 1
            for segment, count in dict(record.attributes.get("pairs", ())).items():
                # Segments before the first one were freed, with the elements that they had.
                missing = segment >= first_segment and have[segment] != count
                require(not missing, "elements of a transaction are missing")
            if record.type in ("commit", "rollback"):
                del counts[number]


def _has(runs: Runs, number: int) -> bool:
    place = bisect_right(runs, number, key=itemgetter(0)) - 1
    return place >= 0 and number <= runs[place][1]
