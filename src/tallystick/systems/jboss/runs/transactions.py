"""The transactions in a part of a file, in columns, and which of them are regular.

In: the records of the part. Out: `Lives`. Whoever follows transactions in columns takes those that
are regular (`Lives.regular`) and follows the others record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tallystick.arrow.neighbours import among, firsts, last_where, lasts_of, marked, sums
from tallystick.systems.jboss.format import layout
from tallystick.systems.jboss.read.scan import OFFSET, SIZE
from tallystick.systems.jboss.runs.chunk import INSIDE, Chunk, Fields

_ELEMENTS = marked(layout.ELEMENTS)
_ENDS = marked((layout.COMMIT, layout.ROLLBACK))
_NEVER = 1 << 62
"""An offset after the end of every file."""
_OUTSIDE = marked((layout.ADD, layout.UPDATE, layout.DELETE))
"""Types of records that change something outside of transactions."""


@dataclass(frozen=True, slots=True)
class Lives:
    """Records of transactions, by number and then by offset, cut after each commit or rollback.

    What lies between two cuts is one life of a number: one that is used again has several.

    Attributes:
        places: where the records stand among all of the part of a file.
        ours: the records.
        starts: the place in ``ours`` of the first record of each life.
        lasts: the same of its last record.
    """

    places: Any
    ours: Chunk
    starts: Any
    lasts: Any

    @property
    def numbers(self) -> Any:
        """The transaction of each life."""
        return self.ours.transactions[self.starts]

    def sums(self, values: Any) -> Any:
        """Return the sum of a value of each record, by life."""
        return sums(values, self.starts)

    def each(self, values: Any) -> Any:
        """Return for each record a value of its life."""
        return np.repeat(values, self.lasts - self.starts + 1)

    @property
    def first(self) -> Any:
        """Which lives are the first one of their number."""
        return firsts(self.numbers)

    @property
    def regular(self) -> Any:
        """Which lives have an end after something else, at most one prepare, and right counts."""
        kinds, expected = self.ours.kinds, self.ours.counts
        elements, prepares = _ELEMENTS[kinds], kinds == layout.PREPARE
        # Elements before each record of its life: what a prepare or commit has to have counted.
        before = np.cumsum(elements) - elements
        # One cumulative sum runs through all lives: what it was at the first record of each is
        # taken off.
        before -= self.each(before[self.starts])
        # A prepare or commit counts the elements in its own file (format, Records). These are all
        # that there are, if the life begins in this part: see `closed_lives`.
        counted = prepares | (kinds == layout.COMMIT)
        wrong = self.sums(counted & (before != expected)) > 0
        several = self.lasts > self.starts
        return _ENDS[kinds[self.lasts]] & several & (self.sums(prepares) <= 1) & ~wrong

    @property
    def prepares(self) -> Any:
        """The place of the last prepare of each life, or of its last record if it has none."""
        last = last_where(self.ours.kinds == layout.PREPARE, self.starts)
        return np.where(last < 0, self.lasts, last)

    def others(self, closed: Any, count: int) -> Any:
        """Return which of all ``count`` records belong to lives that are not closed."""
        found = np.zeros(count, np.bool_)
        found[self.places[~self.each(closed)]] = True
        return found


def lives_of(records: Chunk) -> Lives | None:
    """Return the lives of transactions in a part of a file; None if there are none."""
    places = np.flatnonzero(INSIDE[records.kinds])
    if not len(places):
        return None
    # Stable: the records of a number stay in file order, between them its ends.
    places = places[np.argsort(records.transactions[places], kind="stable")]
    ours = records.at(places)
    begins = firsts(ours.transactions)
    begins[1:] |= _ENDS[ours.kinds[:-1]]
    starts = np.flatnonzero(begins)
    return Lives(places, ours, starts, lasts_of(starts, len(begins)))


def closed_lives(lives: Lives, opened: Collection[int], odd: Collection[int] = ()) -> Any:
    """Return which lives begin and end in a file and are regular; arguments as in `effects_of`."""
    known, strange = among(lives.numbers, opened), among(lives.numbers, odd)
    # Only the first life of a number can have begun before this part. Before the others stands an
    # end.
    return lives.regular & ~(lives.first & known) & ~strange


@dataclass(frozen=True, slots=True)
class Effects:
    """Records that change something for good, in the order in which they count.

    Attributes:
        records: the records.
        ends: where the record ends that makes each count: itself, or the commit.
        transactions: the place in ``prepares`` of the transaction of each; -1 outside of any.
        prepares: a record of each transaction: its prepare, if it has one.
        closed: the ends of regular transactions, by their offsets.
    """

    records: Chunk
    ends: Any
    transactions: Any
    prepares: Chunk
    closed: Chunk

    def steps(self, others: Chunk) -> Iterator[tuple[Chunk, Chunk, Sequence[Fields]]]:
        """Yield the steps of the chunk, each up to the next end among the records of ``others``.

        A step is the effects in columns up to there, the ends of regular transactions up to there,
        and the single records from that end on. Only an end among these has an effect.
        """
        for part, ended, singles in self.places(others):
            yield self.records.at(part), self.closed.at(ended), singles

    def places(self, others: Chunk) -> Iterator[tuple[slice, slice, Sequence[Fields]]]:
        """Yield the steps: where in ``records`` and in ``closed`` each has its own, and singles."""
        singles = list(others.fields())
        ends = [at for at, one in enumerate(singles) if one[0] in (layout.COMMIT, layout.ROLLBACK)]
        offsets = [-1, *(singles[at][1] for at in ends), _NEVER]
        # "right": an effect whose record ends where the replayed end begins comes before it. The
        # ends of regular transactions are compared by where they begin, so for them "left" is the
        # same.
        counted = np.searchsorted(self.ends, offsets, "right").tolist()
        closed = np.searchsorted(self.closed.rows[:, OFFSET], offsets).tolist()
        # Elements have no effect before their end: those before the first end go with the first
        # step.
        bounds = [0, *ends[1:], *[len(singles)] * (2 if ends else 1)]
        for part, ended, group in zip(*map(pairwise, (counted, closed, bounds)), strict=True):
            yield slice(*part), slice(*ended), singles[slice(*group)]


def effects_of(
    records: Chunk, opened: Collection[int], odd: Collection[int] = ()
) -> tuple[Effects, Any]:
    """Return the effects of records outside of transactions, and of regular transactions.

    Also which records belong to other transactions. ``opened`` are the transactions that are open
    where the part of the file begins, ``odd`` are some that are not taken for regular.
    """
    return effects_by(records, lives_of(records), lambda lives: closed_lives(lives, opened, odd))


def effects_by(
    records: Chunk, lives: Lives | None, closed_of: Callable[[Lives], Any]
) -> tuple[Effects, Any]:
    """Return what `effects_of` does, of the lives of the records that somebody calls closed."""
    ends, wanted = records.rows[:, OFFSET] + records.rows[:, SIZE], _OUTSIDE[records.kinds]
    numbers, others = np.full(len(ends), -1), np.zeros(len(ends), np.bool_)
    prepares = closed = records.at(slice(0))
    if lives is not None:
        fitting = closed_of(lives)
        others = lives.others(fitting, len(ends))
        prepares = lives.ours.at(lives.prepares)
        last = lives.places[lives.lasts]
        closed = records.at(np.sort(last[fitting]))
        committed = fitting & (records.kinds[last] == layout.COMMIT)
        wanted[lives.places[lives.each(committed) & _ELEMENTS[lives.ours.kinds]]] = True
        numbers[lives.places] = lives.each(np.arange(len(last)))
        # From here on, of an element the end of its commit.
        ends[lives.places] = lives.each(ends[last])
    places = np.flatnonzero(wanted)
    deletes = records.kinds[places] == layout.DELETE_TX
    # A commit applies its adds and updates first, its deletes last, as the loader does.
    # The last key of `lexsort` counts first; what is equal in both stays in file order.
    places = places[np.lexsort((deletes, ends[places]))]
    return Effects(records.at(places), ends[places], numbers[places], prepares, closed), others
