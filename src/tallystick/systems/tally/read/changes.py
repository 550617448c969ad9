"""The change feed of a native log: committed adds, updates and deletes.

In: records in log order. Out: `Change` objects in commit order. Memory grows with open
transactions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import replace

from tallystick.records import Change, Fate, Kind, Outcome, Record, Row
from tallystick.systems.decisions import recorded_decision
from tallystick.systems.tally.format.bodies import ROW_HEAD_SIZE
from tallystick.systems.tally.format.layout import SYSTEM_NAME

ELEMENTS = frozenset({
    "append", "add", "update", "delete", "begin", "moved_add", "moved_update", "redo_add",
    "redo_remove", "truncate",
})  # fmt: skip
"""Types of the records that the endings of transactions count."""

CHANGE_KINDS = {
    "add": Kind.ADD, "update": Kind.UPDATE, "delete": Kind.DELETE, "append": Kind.ADD,
    "redo_add": Kind.ADD, "redo_remove": Kind.DELETE, "truncate": Kind.TRUNCATE,
}  # fmt: skip


class ChangeFeed:
    """Turns records in log order into changes in commit order.

    ``incomplete`` has the LSNs of the ends of transactions with records missing: these change
    nothing.
    """

    def __init__(self, log: str, incomplete: Container[int | None]) -> None:
        self._log = log
        self._incomplete = incomplete
        self._open: dict[int, list[Record]] = {}
        self._prepared: dict[int, bytes | None] = {}

    @property
    def numbers(self) -> set[int]:
        """Transactions that are known and have not ended."""
        return self._open.keys() | self._prepared.keys()

    def take(self, records: Iterable[Record]) -> Iterator[Change]:
        """Yield the changes that are committed by these records."""
        return (row.change for row in self.rows(records) if row.fate is Fate.COMMITTED)

    def rows(self, records: Iterable[Record]) -> Iterator[Row]:
        """Yield the changes of transactions that end in these records; salvaged ones are lost."""
        for record in records:
            if record.outcome is not Outcome.VALID:
                continue
            number = record.transaction
            if number is None:
                if record.type in CHANGE_KINDS:
                    yield Row(fate_of(record), _change(self._log, record, record, 0))
            elif record.type in CHANGE_KINDS:
                self._open.setdefault(number, []).append(record)
            elif record.type == "prepare":
                self._prepared[number] = record.gtrid
            elif record.type in ("commit", "rollback"):
                elements = self._open.pop(number, [])
                gtrid = self._prepared.pop(number, None)
                fate = Fate.LOST if record.sequence in self._incomplete else fate_of(record)
                fate = fate if record.type == "commit" else Fate.UNDONE
                for ordinal, element in enumerate(elements):
                    yield Row(fate, _change(self._log, element, record, ordinal, gtrid))

    def rest(self) -> Iterator[Row]:
        """Yield the changes of transactions that did not end."""
        for number, elements in self._open.items():
            fate = Fate.IN_DOUBT if number in self._prepared else Fate.UNDONE
            for element in elements:
                change = _change(self._log, element, element, 0, self._prepared.get(number))
                yield Row(fate, replace(change, commit_sequence=0))


def changes_between(
    log: str,
    records_from: Callable[[int, Collection[int]], Iterator[Record]],
    first_of: Callable[[int], int],
    after: int,
    until: int,
) -> Iterator[Change]:
    """Yield what records with an LSN above ``after`` and up to ``until`` commit, in commit order.

    Only as much is read before them as their transactions need. Memory grows with open ones.

    Args:
        log: the name of the log.
        records_from: returns the records from an LSN on, in log order; of those up to ``after``
            only the ones of some transactions.
        first_of: returns the first LSN of a segment; 0 for one that was given up.
        after: all changes that were committed up to here are known.
        until: the last LSN that is read.
    """
    begin, holes = _needed(_up_to(records_from(after + 1, ()), until), first_of, after + 1)
    begun, incomplete = set(holes.values()), holes.keys()
    if begin <= after:
        _, holes = _needed(_up_to(records_from(begin, begun), until), first_of, begin)
        incomplete = holes.keys()
    feed = ChangeFeed(log, incomplete)
    for change in feed.take(_up_to(records_from(begin, begun), until)):
        if change.commit_sequence > after:
            yield change


def _up_to(records: Iterable[Record], until: int) -> Iterator[Record]:
    """Yield records up to an LSN; nothing after it is read, where damage may be."""
    for record in records:
        if (number := record.sequence or 0) <= until:
            yield record
        if number >= until:
            return


def _needed(
    records: Iterable[Record], first_of: Callable[[int], int], begin: int
) -> tuple[int, dict[int, int]]:
    """Return the first LSN that the transactions that commit here need, and which have holes.

    These by the LSN of their end, with their number. Segments that were given up may be missing.
    """
    holes: dict[int, int] = {}
    for ending, segments in lacking(records):
        for first in filter(None, map(first_of, segments)):
            begin = min(begin, first)
            holes[ending.sequence or 0] = ending.transaction or 0
    return begin, holes


def lacking(records: Iterable[Record]) -> Iterator[tuple[Record, list[int]]]:
    """Yield the endings of transactions of which records are missing, and in which segments."""
    counts: dict[int, Counter[int]] = {}
    for record in records:
        number = record.transaction
        if number is None or record.outcome is not Outcome.VALID:
            continue
        if record.type in ELEMENTS:
            counts.setdefault(number, Counter())[record.attributes["segment"]] += 1
        elif record.type in ("commit", "rollback"):
            have = counts.pop(number, Counter())
            pairs = record.attributes.get("pairs", ())
            if segments := [segment for segment, count in pairs if have[segment] != count]:
                yield record, segments


def placed_rows(feed: ChangeFeed, log: str, records: Iterable[Record]) -> Iterator[tuple[int, Row]]:
    """Yield the changes of transactions that end in these records, and decisions, with the LSN."""
    for record in records:
        if record.kind is Kind.DECISION:
            found = recorded_decision(record, log, fate_of(record))
        else:
            found = feed.rows((record,))
        for row in found:
            yield record.sequence or 0, row


def fate_of(record: Record) -> Fate:
    """Return what becomes of what a record commits or decides."""
    return Fate.LOST if record.attributes.get("salvaged") else Fate.COMMITTED


def _change(
    log: str, record: Record, commit: Record, ordinal: int, gtrid: bytes | None = None
) -> Change:
    table = record.attributes.get("table")
    kind = CHANGE_KINDS[record.type]
    body = record.body
    if table is not None and body is not None:
        body = body[ROW_HEAD_SIZE:]
    change = Change(
        SYSTEM_NAME,
        log,
        commit.sequence or 0,
        ordinal,
        kind,
        "" if table is None else str(table),
        "" if record.record_id is None else str(record.record_id),
        record.file,
        record.offset,
        transaction=None if record.transaction is None else str(record.transaction),
        gtrid=gtrid or commit.gtrid,
        time=commit.time,
        after=body,
    )
    return change if kind in (Kind.ADD, Kind.UPDATE) else replace(change, after=None)
