"""Apply records one after the other: sections 3.4 and 3.5 of the format.

In: records in file order, each with its file. Out: their effects in the order of the loader's
callbacks, and at the end the transactions that stay open. Both the emulation of the original
loaders and the strict reading use `Replay`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tallystick.systems.jboss.format.layout import ELEMENTS, Item, RecordType, Shape


@dataclass(frozen=True, slots=True)
class PlacedRecord:
    """A record and its file.

    Attributes:
        item: the record.
        order: place of its file in the order of files.
        stamp: the stamp in the header of its file.
        path: the path of its file.
        dropped: True if the journal's own loader does not see it.
    """

    item: Item
    order: int
    stamp: int
    path: str
    dropped: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """What orders the records of a journal: order of the file, offset in it."""
        return self.order, self.item.offset


@dataclass(slots=True)
class OpenTransaction:
    """A transaction whose end was not read yet.

    Attributes:
        transaction: its number.
        records: its adds and updates.
        deletes: its deletes.
        elements: its elements per stamp.
        run: elements since it last changed to another file.
        run_order: order of the file of that run.
        prepared: its prepare.
        invalid: the count of its prepare was wrong.
        placed: a file holds an element of it, or a prepare with the right count.
        holes: which elements are missing, in words.
    """

    transaction: int
    records: list[PlacedRecord] = field(default_factory=list)
    deletes: list[PlacedRecord] = field(default_factory=list)
    elements: dict[int, int] = field(default_factory=dict)
    run: int = 0
    run_order: int = -1
    prepared: PlacedRecord | None = None
    invalid: bool = False
    placed: bool = False
    holes: str = ""

    def add(self, placed: PlacedRecord) -> None:
        """Add an element."""
        self.placed = True
        deleting = placed.item.type is RecordType.DELETE_TX
        (self.deletes if deleting else self.records).append(placed)
        self.elements[placed.stamp] = self.elements.get(placed.stamp, 0) + 1
        self.end_other_run(placed.order)
        self.run += 1

    def end_other_run(self, order: int) -> None:
        """Begin a new run unless the current one is in the file of that order."""
        if self.run_order != order:
            self.run, self.run_order = 0, order


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
    """

    open: OpenTransaction
    end: PlacedRecord
    complete: bool
    known: bool = True


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

    def feed(self, placed: PlacedRecord) -> tuple[list[Effect], EndedTransaction | None]:
        """Apply one record; return its effects and the transaction that it ends."""
        kind = placed.item.type
        if kind in ELEMENTS:
            self._opened(placed).add(placed)
        elif kind in (RecordType.ADD, RecordType.UPDATE, RecordType.DELETE):
            return [Effect(placed, placed)], None
        elif kind is RecordType.PREPARE:
            self._prepare(placed)
        elif kind in (RecordType.COMMIT, RecordType.ROLLBACK):
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
            one.end_other_run(end.order)
            found, expected = one.run, end.item.count or 0
            if found == expected:
                return ""
            return f"the file of its end holds {found} of its elements instead of {expected}"
        for stamp, expected in end.item.pairs or ():
            found = one.elements.get(stamp, 0)
            if found != expected and (found or stamp in self.stamps):
                return f"file id {stamp} holds {found} of its elements instead of {expected}"
        return ""

    def _opened(self, placed: PlacedRecord) -> OpenTransaction:
        number = placed.item.transaction or 0
        return self.open.setdefault(number, OpenTransaction(number))

    def _prepare(self, placed: PlacedRecord) -> None:
        number = placed.item.transaction or 0
        if self.pairs and number not in self.open:
            return
        one = self._opened(placed)
        one.prepared = placed
        if holes := self.holes(one, placed):
            one.invalid, one.holes = True, holes
            if not self.pairs:
                self.incomplete.append(number)
        else:
            one.placed = True

    def _end(self, placed: PlacedRecord) -> tuple[list[Effect], EndedTransaction | None]:
        number = placed.item.transaction or 0
        one = self.open.pop(number, None)
        if one is None:
            stray = OpenTransaction(number)
            stray.holes = self.holes(stray, placed)
            return [], EndedTransaction(stray, placed, complete=True, known=False)
        if placed.item.type is RecordType.ROLLBACK:
            return [], EndedTransaction(one, placed, complete=True)
        one.holes = self.holes(one, placed)
        if one.holes:
            self.incomplete.append(number)
            return [], EndedTransaction(one, placed, complete=False)
        effects = [Effect(element, placed) for element in (*one.records, *one.deletes)]
        return effects, EndedTransaction(one, placed, complete=True)
