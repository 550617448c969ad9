"""Apply records one after the other.

Source: docs/formats/jboss.md, "What records mean".

In: the numbers of records in file order, each with its file. Out: their effects in the order of
the loader's callbacks, and at the end the transactions that stay open. The emulation of the
original loaders, the strict reading, the changes and the live journal use `Replay`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tallystick.systems.jboss.format.layout import (
    ADD,
    COMMIT,
    DELETE,
    DELETE_TX,
    ELEMENTS,
    PREPARE,
    ROLLBACK,
    UPDATE,
    Item,
    Shape,
    decode,
)
from tallystick.systems.jboss.read.files import JournalFile


@dataclass(frozen=True, slots=True, eq=False)
class RecordFile:
    """A file of which records are applied.

    Attributes:
        file: the file.
        shape: the shape of these records.
        order: its place in the order of files.
        stamp: the file id that the records carry.
    """

    file: JournalFile
    shape: Shape
    order: int
    stamp: int


class PlacedRecord(NamedTuple):
    """A record as its numbers, and its file.

    Attributes:
        kind: its type, a `RecordType`.
        offset: its offset in the file, in bytes.
        end: the offset after it.
        transaction: the number of its transaction; 0 outside of any.
        number: its record id; 0 if it has none.
        value: the count of a commit or prepare, the user type of a record with a body; else 0.
        where: the file.
        dropped: True if the journal's own loader does not see it.
        kept: the record, where it was decoded whole.
    """

    kind: int
    offset: int
    end: int
    transaction: int
    number: int
    value: int
    where: RecordFile
    dropped: bool = False
    kept: Item | None = None

    @classmethod
    def of(cls, item: Item, where: RecordFile, *, dropped: bool = False) -> PlacedRecord:
        """Return a decoded record in its file."""
        value = item.count if item.user_type is None else item.user_type
        numbers = item.transaction or 0, item.record_id or 0, value or 0
        end = item.offset + item.length
        return cls(int(item.type), item.offset, end, *numbers, where, dropped, item)

    @property
    def item(self) -> Item:
        """The record; it is decoded for it, if it was not before."""
        if self.kept is not None:
            return self.kept
        size = self.end - self.offset
        return decode(self.where.shape, self.where.file.data(), self.offset, size)

    @property
    def path(self) -> str:
        """The path of its file."""
        return self.where.file.path

    @property
    def place(self) -> tuple[int, int]:
        """What orders the records of a journal: order of the file, offset in it."""
        return self.where.order, self.offset


@dataclass(slots=True)
class ElementRun:
    """The elements of a transaction since it last changed to another file.

    Attributes:
        key: the number of that file: its id, or its order.
        count: how many.
    """

    key: int = -1
    count: int = 0

    def add(self, key: int) -> None:
        """Count an element in a file."""
        self.count = self.within(key) + 1
        self.key = key

    def within(self, key: int) -> int:
        """Return the count that a commit or prepare in a file carries."""
        return self.count if self.key == key else 0


@dataclass(slots=True)
class OpenTransaction:
    """A transaction whose end was not read yet.

    Attributes:
        transaction: its number.
        records: its adds and updates.
        deletes: its deletes.
        elements: its elements per stamp.
        run: its elements in the last file that has any.
        prepared: its prepare.
        invalid: the count of its prepare was wrong.
        placed: a file holds an element of it, or a prepare with the right count.
        holes: which elements are missing, in words.
    """

    transaction: int
    records: list[PlacedRecord] = field(default_factory=list)
    deletes: list[PlacedRecord] = field(default_factory=list)
    elements: dict[int, int] = field(default_factory=dict)
    run: ElementRun = field(default_factory=ElementRun)
    prepared: PlacedRecord | None = None
    invalid: bool = False
    placed: bool = False
    holes: str = ""

    def add(self, placed: PlacedRecord) -> None:
        """Add an element."""
        self.placed = True
        (self.deletes if placed.kind == DELETE_TX else self.records).append(placed)
        stamp = placed.where.stamp
        self.elements[stamp] = self.elements.get(stamp, 0) + 1
        self.run.add(placed.where.order)


@dataclass(frozen=True, slots=True)
class Effect:
    """One record that is added, updated or deleted for good; ``by`` is the record that did it."""

    placed: PlacedRecord
    by: PlacedRecord


@dataclass(slots=True)
class EndedTransaction:
    """A transaction with its commit or rollback.

    Attributes:
        open: its records.
        end: the commit or rollback.
        complete: none of its elements is missing.
        known: False if no record of it was found: reclaimed, ended already, or, where ``open`` has
            holes, damaged, as the end counts elements in a file that is there.
        again: such an end, and another one of that number stands before it.
    """

    open: OpenTransaction
    end: PlacedRecord
    complete: bool
    known: bool = True
    again: bool = False


class Replay:
    """Follows the records of one journal in file order.

    A transaction whose commit lists pairs is complete if each listed file, as far as it exists,
    holds as many elements as listed. Otherwise it is complete if the run of elements in the file
    of its end is as long as the commit says.
    """

    def __init__(self, shape: Shape, stamps: Sequence[int]) -> None:
        """Begin with the stamps of the files that exist."""
        self.pairs = shape.pairs
        self.stamps = frozenset(stamps)
        self.open: dict[int, OpenTransaction] = {}
        self.incomplete: list[int] = []
        """Transactions that the loader warns of, in order."""
        self.ended_unplaced = self.discarded_unplaced = False
        """Whether a transaction ended, or was discarded at its end, of which no file held more than
        a prepare with a wrong count."""

    def feed(self, placed: PlacedRecord) -> tuple[list[Effect], EndedTransaction | None]:
        """Apply one record; return its effects and the transaction that it ends."""
        kind = placed.kind
        if kind in ELEMENTS:
            self._opened(placed.transaction).add(placed)
        elif kind in (ADD, UPDATE, DELETE):
            return [Effect(placed, placed)], None
        elif kind == PREPARE:
            self._prepare(placed)
        elif kind in (COMMIT, ROLLBACK):
            return self._end(placed)
        return [], None

    def discarded(self) -> Iterator[OpenTransaction]:
        """Yield the open transactions that a load discards, in order of their first record."""
        return (one for one in self.open.values() if one.prepared is None or one.invalid)

    def in_doubt(self) -> Iterator[OpenTransaction]:
        """Yield the prepared transactions, in order of their first record."""
        return (one for one in self.open.values() if one.prepared is not None and not one.invalid)

    def holes(self, one: OpenTransaction, end: PlacedRecord) -> str:
        """Return why the transaction is not complete at ``end``; empty if it is."""
        if not self.pairs:
            found = one.run.within(end.where.order)
            # Only what stands in the file of the end is compared: elements lost in an earlier file
            # are not noticed, in any code from g1d on (format, What records mean).
            expected = end.value if end.kind != ROLLBACK else 0
            if found == expected:
                return ""
            return f"the file of its end holds {found} of its elements instead of {expected}"
        for stamp, expected in end.item.pairs or ():
            found = one.elements.get(stamp, 0)
            # No element found, and no file of that id: the loader takes the file for reclaimed
            # (format, What records mean).
            if found != expected and (found or stamp in self.stamps):
                return f"file id {stamp} holds {found} of its elements instead of {expected}"
        return ""

    def _opened(self, number: int) -> OpenTransaction:
        if (one := self.open.get(number)) is None:
            one = self.open[number] = OpenTransaction(number)
        return one

    def _prepare(self, placed: PlacedRecord) -> None:
        number = placed.transaction
        # Up to g1c a prepare of an unknown transaction is ignored; from g1d on a transaction
        # without elements can be in doubt (format, What records mean).
        if self.pairs and number not in self.open:
            return
        one = self._opened(number)
        one.prepared = placed
        if holes := self.holes(one, placed):
            one.invalid, one.holes = True, holes
            if not self.pairs:
                self.incomplete.append(number)
        else:
            one.placed = True

    def _end(self, placed: PlacedRecord) -> tuple[list[Effect], EndedTransaction | None]:
        number = placed.transaction
        one = self.open.pop(number, None)
        if one is None:
            stray = OpenTransaction(number)
            stray.holes = self.holes(stray, placed)
            return [], EndedTransaction(stray, placed, complete=True, known=False)
        holes = self.holes(one, placed) if placed.kind == COMMIT else ""
        if not one.placed:
            self.discarded_unplaced |= bool(holes)
            self.ended_unplaced |= not holes
        if placed.kind == ROLLBACK:
            return [], EndedTransaction(one, placed, complete=True)
        one.holes = holes
        if holes:
            self.incomplete.append(number)
            return [], EndedTransaction(one, placed, complete=False)
        # The deletes last, wherever they stand, as the loader does (format, What records mean).
        effects = [Effect(element, placed) for element in (*one.records, *one.deletes)]
        return effects, EndedTransaction(one, placed, complete=True)
