"""Which table a container is, from commit to commit: the names of tables in changes.

In: the catalogue where a log begins, and committed operations on it. Out: the table's name at the
commit of a change, and where a name has no rows any more, or those of another container. A
container of which the catalogue tells no table keeps its number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.catalogue import NAMING, Catalogue
from tallystick.systems.derby.read.containers import CONTROL_ROW, Key

Rows = Iterator[tuple[Key, dict[int, bytes | None]]]
RowsOf = Callable[[int, int], Rows]
"""Gives the rows that a container got at a commit, and that the log does not hold itself."""

_KEPT = 64
"""How many places of logs a process remembers with what is known there."""


@dataclass(frozen=True, slots=True)
class Emptied:
    """A name whose rows are gone; ``container`` has its rows from now on, if there is one."""

    name: str
    container: int | None


class Names:
    """The names of tables, as a commit sees them once it was taken.

    Args:
        catalogue: where the first commit is that will be taken. It is changed.
        rows_of: see `RowsOf`.
    """

    def __init__(self, catalogue: Catalogue, rows_of: RowsOf) -> None:
        self.catalogue, self.rows_of = catalogue, rows_of
        self._now, self._indexes = catalogue.names, catalogue.indexes

    def take(self, bodies: Iterable[Body], commit: int) -> Sequence[Emptied]:
        """Take in the operations of a commit, and return the names that it empties.

        Operations of the commit itself are on the tables before it and on those after it.
        """
        naming = [body for body in bodies if tells_names(body.fields["pageId"])]
        before = self._now = self.catalogue.names
        self._indexes = self.catalogue.indexes
        if not naming:
            return ()
        last, loaded = dict(self.catalogue.last), set(self.catalogue.loaded)
        self.catalogue.apply(naming, commit)
        after = self.catalogue.names
        self._now = before | after
        self._indexes = self._indexes | self.catalogue.indexes
        there = {name: container for container, name in after.items()}
        gone = [
            name
            for container, name in before.items()
            if container not in after and name not in there
        ]
        for name in gone:
            del self.catalogue.last[name]
        loaded = self.catalogue.loaded - loaded
        others = (
            (name, container)
            for name, container in there.items()
            if container in loaded or last.get(name, container) != container
        )
        return [*(Emptied(one, None) for one in gone), *(Emptied(*one) for one in others)]

    @property
    def settled(self) -> bool:
        """Whether the commit that was taken last has changed no name."""
        return self._now is self.catalogue.names

    @property
    def indexes(self) -> Collection[int]:
        """The containers that are indexes for the commit that was taken last."""
        return self._indexes

    @property
    def tables(self) -> Collection[int]:
        """The containers that are tables for the commit that was taken last."""
        return self._now

    def is_row(self, page: Page, record: int) -> bool:
        """Return whether a record is a row: no entry of an index, and not what describes a table.

        What is in a container that the catalogue does not know counts as a row.
        """
        if page.segment or page.container not in self._now:
            return bool(page.segment) or page.container not in self._indexes
        return (page.number, record) != CONTROL_ROW

    def name(self, segment: int, container: int) -> str:
        """Return the name of a table for the commit that was taken last."""
        if segment:
            return f"{segment}:{container}"
        return self._now.get(container) or str(container)


def tells_names(page: Page) -> bool:
    """Return whether a page is of the part of the catalogue that names tables."""
    return not page.segment and page.container in NAMING


class KnownNames:
    """What a process knows of catalogues, by log and instant: the next step goes on from there."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int], Catalogue] = OrderedDict()

    def get(self, log: str, place: int) -> Catalogue | None:
        """Return the catalogue at an instant, for its receiver to change; None if not known."""
        found = self._known.get((log, place))
        return None if found is None else found.copied()

    def keep(self, log: str, place: int, catalogue: Catalogue) -> None:
        """Keep the catalogue at an instant."""
        self._known[log, place] = catalogue.copied()
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)


KNOWN = KnownNames()
