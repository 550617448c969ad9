"""What records do to a journal, one after the other: section 3.4 and 3.5 of the format.

In: records in file order, each with its file. Out: `Applied` effects in the order in which the
loader's callbacks see them, and at the end the transactions that stay open. One `Replay` serves the
original loaders (lists of deletes, their idea of completeness) and the strict reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tallystick.systems.jboss.format.layout import ELEMENTS, Item, Name, Shape


@dataclass(frozen=True, slots=True)
class Placed:
    """A record and the file it stands in: place in the order of files, header stamp."""

    item: Item
    order: int
    stamp: int
    path: str
    lost: bool = False
    """True if the journal's own loader does not see it."""


@dataclass(slots=True)
class Open:
    """A transaction while its records come in.

    ``elements`` per stamp over the whole transaction, ``run`` the unbroken run in the file
    ``run_order``; ``invalid`` after a prepare that did not count right.
    """

    transaction: int
    records: list[Placed] = field(default_factory=list)
    deletes: list[Placed] = field(default_factory=list)
    elements: dict[int, int] = field(default_factory=dict)
    run: int = 0
    run_order: int = -1
    prepared: Placed | None = None
    invalid: bool = False
    holes: str = ""

    def add(self, placed: Placed) -> None:
        """Take an element of the transaction."""
        (self.deletes if placed.item.name is Name.DELETE_TX else self.records).append(placed)
        self.elements[placed.stamp] = self.elements.get(placed.stamp, 0) + 1
        self.run = self.run_in(placed.order) + 1
        self.run_order = placed.order

    def run_in(self, order: int) -> int:
        """Elements of the unbroken run that ends in the file of that order."""
        return self.run if self.run_order == order else 0

    def break_run(self, order: int) -> None:
        """Forget the run of another file, as the loader does when it asks for a count."""
        if self.run_order != order:
            self.run, self.run_order = 0, order


@dataclass(frozen=True, slots=True)
class Applied:
    """An effect: a record that is added or updated, or a deleted id, and what made it count."""

    placed: Placed
    by: Placed


@dataclass(slots=True)
class Ended:
    """A transaction that ended: its records so far, its end, and whether it was complete."""

    open: Open
    end: Placed
    complete: bool
    known: bool = True
    """False if no record of it was there: reclaimed, or ended already."""


class Replay:
    """Follows the records of one journal in file order.

    ``stamps`` are those of the files that exist. With ``pairs`` a transaction is complete if the
    elements found in each listed file, as far as it exists, are as many as listed; otherwise if
    the run in the file of its end is as long as it says.
    """

    def __init__(self, shape: Shape, stamps: Sequence[int]) -> None:
        self.pairs = shape.pairs
        self.stamps = frozenset(stamps)
        self.open: dict[int, Open] = {}
        self.incomplete: list[int] = []
        """Transactions that the loader warns of, in order."""

    def feed(self, placed: Placed) -> tuple[list[Applied], Ended | None]:
        """The effects of one record, and the transaction that it ends."""
        name = placed.item.name
        if name in ELEMENTS:
            self._opened(placed).add(placed)
        elif name in (Name.ADD, Name.UPDATE, Name.DELETE):
            return [Applied(placed, placed)], None
        elif name is Name.PREPARE:
            self._prepare(placed)
        elif name in (Name.COMMIT, Name.ROLLBACK):
            return self._end(placed)
        return [], None

    def discarded(self) -> Iterator[Open]:
        """Open transactions that a load throws away, in order of their first record."""
        return (one for one in self.open.values() if one.prepared is None or one.invalid)

    def in_doubt(self) -> Iterator[Open]:
        return (one for one in self.open.values() if one.prepared is not None and not one.invalid)

    def holes(self, one: Open, end: Placed) -> str:
        """Why the transaction is not complete at ``end``, empty if it is."""
        if not self.pairs:
            one.break_run(end.order)
            found, expected = one.run, end.item.count or 0
            if found == expected:
                return ""
            return f"the file of its end holds {found} of its elements instead of {expected}"
        for stamp, expected in end.item.pairs or ():
            found = one.elements.get(stamp, 0)
            if found != expected and (found or stamp in self.stamps):
                return f"file id {stamp} holds {found} of its elements instead of {expected}"
        return ""

    def _opened(self, placed: Placed) -> Open:
        number = placed.item.transaction or 0
        return self.open.setdefault(number, Open(number))

    def _prepare(self, placed: Placed) -> None:
        number = placed.item.transaction or 0
        if self.pairs and number not in self.open:
            return
        one = self._opened(placed)
        one.prepared = placed
        if holes := self.holes(one, placed):
            one.invalid, one.holes = True, holes
            if not self.pairs:
                self.incomplete.append(number)

    def _end(self, placed: Placed) -> tuple[list[Applied], Ended | None]:
        number = placed.item.transaction or 0
        one = self.open.pop(number, None)
        if one is None:
            return [], Ended(Open(number), placed, complete=True, known=False)
        if placed.item.name is Name.ROLLBACK:
            return [], Ended(one, placed, complete=True)
        one.holes = self.holes(one, placed)
        if one.holes:
            self.incomplete.append(number)
            return [], Ended(one, placed, complete=False)
        effects = [Applied(element, placed) for element in (*one.records, *one.deletes)]
        return effects, Ended(one, placed, complete=True)
