"""Transactions and changes of a part of a log, and the proof that the parts are the whole log.

In: a `Part` and the file. Out: rows of the transactions that end in it, and of the changes in it
that are committed anywhere. A part was told how many transactions end before it, and what becomes
of those that are open at its end; it notes what it found itself. Joining the notes proves that all
parts were told right, and gives the transactions that never end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tallystick.arrow.schemas import batches_of_transactions
from tallystick.records import Clock
from tallystick.roles import branch_of
from tallystick.systems.h2.columns.changes import ChangeColumns, Fate
from tallystick.systems.h2.columns.parts import (
    Ending,
    Mark,
    Opened,
    Pages,
    Part,
    keys_of,
    names_of,
    stored_names,
)
from tallystick.systems.h2.columns.transactions import TransactionColumns
from tallystick.systems.h2.engine.large_objects import block_tables
from tallystick.systems.h2.format.catalogue import TableLives
from tallystick.systems.h2.format.entries import Type
from tallystick.systems.h2.format.session_kernels import CHANGES, END, PREPARED_AT
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.shown import Presentation
from tallystick.systems.h2.read.ledger import Endings, Ledger, Page, logged, open_state
from tallystick.systems.h2.read.scan import ScanEnd
from tallystick.systems.h2.read.skim import ROWS, PlainLog, ended_plainly
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.read.walk import walk
from tallystick.systems.protocol import NotClosedInPartsError
from tallystick.systems.rests import items, longs, packed

if TYPE_CHECKING:
    from tallystick.systems.protocol import Longs

Batches = Iterator[tuple[str, pa.RecordBatch]]


class Rest(NamedTuple):
    """What a part was told, and what it found.

    Attributes:
        begin: where it was told to begin.
        end: where it ended.
        pages: those that it read.
        told: what it was told of what is open at its end.
        ended: what became of what was open at its begin, and ended in it.
        doubtful: the offsets of commits that may have been written by hand.
        names: the tables of which it gave changes.
        unnamed: others of which it gave changes, whose names it was not told.
    """

    begin: Mark
    end: Mark
    pages: Pages
    told: Sequence[Ending]
    ended: Sequence[Ending]
    doubtful: Longs
    names: TableLives
    unnamed: Longs

    @classmethod
    def built(cls, value: Any) -> Rest:
        """Return the rest whose value was packed, for `unpacked`."""
        begin, end, pages, told, ended, doubtful, names, unnamed = items(
            value, list, list, list, list, list, bytes, list, bytes
        )
        return cls(
            Mark.built(begin),
            Mark.built(end),
            Pages.built(pages),
            [Ending.built(one) for one in told],
            [Ending.built(one) for one in ended],
            longs(doubtful),
            names_of(names),
            longs(unnamed),
        )

    def packed(self) -> bytes:
        """Return it as bytes."""
        begin, end, pages, told, ended, doubtful, names, unnamed = self
        stored = pages.stored(), told, ended, doubtful, stored_names(names)
        return packed((begin, end, *stored, unnamed))


class ClosingPart:
    """Closes a part, which is read once; a batch has at most ``rows`` rows."""

    def __init__(self, part: Part, stream: LogStream, zone: Zone, log: str, rows: int) -> None:
        self._part, self._stream, self._zone, self._rows = part, stream, zone, rows
        self._progress = part.progress()
        plain = PlainLog(stream, zone, [], ScanEnd())
        opened = {one.session: one.transaction(part.base) for one in part.begin.opened}
        self._ledger = Ledger(plain, opened)
        self._transactions = TransactionColumns(plain, log, tuple, part.begin.listed)
        self._changes = ChangeColumns(
            plain, part.names, log, Presentation(self._refuse, part.names.build),
            part.begin.commits, dict(self._fates()), part.base,
        )  # fmt: skip
        self._filled = bool(part.begin.filled)
        self._ended: list[Ending] = []
        self._doubtful: list[Longs] = [np.empty(0, np.int64)]
        self._plain = False
        self._refused = False

    def _refuse(self, _number: int, _position: int) -> None:
        """Note that a large object is needed, whose blocks may be anywhere in the database."""
        self._refused |= bool(block_tables(self._part.names.names))

    def batches(self) -> Batches:
        """Yield transactions and changes by table."""
        for piece in walk(self._stream, ROWS, self._progress):
            page = self._ledger.add(piece)
            if piece.has_odd_session() or _is_unexplained(page):
                return
            yield from self._of(page)
            if self._refused:
                return
            self._filled = int(piece.codes[-1]) == Type.NOOP
        for batch in self._transactions.gathered(self._rows, 1):
            yield "transactions", batch
        self._plain = self._is_plain()

    def rest(self) -> bytes | None:
        """Return the packed `Rest`, after the last batch; None if the whole log must be read."""
        if not self._plain:
            return None
        part, used = self._part, self._changes.tables
        return Rest(
            part.begin,
            self._mark(),
            part.pages,
            part.endings,
            self._ended,
            np.concatenate(self._doubtful) + part.base,
            part.names.within(used),
            np.array(sorted(used - part.names.names.keys()), np.int64),
        ).packed()

    def _of(self, page: Page) -> Batches:
        ends = page.endings(self._filled, tuple)
        self._doubtful.append(page.piece.starts[ends.rows[ends.doubtful]])
        self._ended += self._endings(page, ends)
        self._transactions.take(page, ends)
        for batch in self._transactions.gathered(self._rows, self._rows):
            yield "transactions", batch
        for batch in self._changes.of_page(page, self._rows):
            yield "changes", batch

    def _endings(self, page: Page, ends: Endings) -> Iterator[Ending]:
        """Yield what becomes of transactions that were open at the begin of the part."""
        commits = self._changes.commits + np.cumsum(ends.committed)
        for row, number in enumerate(ends.numbers.tolist()):
            one = page.before.get(number)
            if one is None or not one.carried:
                continue
            names = page.names.get(number)
            commit = int(commits[row]) if ends.committed[row] else 0
            xid = branch_of(names[-1]) if names and commit else None
            session = page.sessions[int(page.figures[0, number])]
            begin = one.begin + self._part.base
            yield Ending(session, begin, commit, xid.gtrid if xid else None)

    def _fates(self) -> Iterator[tuple[int, Fate]]:
        part, stream = self._part, self._stream
        before = {one.session: one.changes for one in part.begin.opened}
        for one in part.endings:
            begin, done = -1, before.get(one.session, 0)
            if one.begin >= part.begin.position:
                begin, done = stream.file_offset(one.begin - part.base), 0
            yield one.session, Fate(begin, one.commit, one.gtrid, done)

    def _is_plain(self) -> bool:
        """Return True if every record up to the end of the part was read, and no other one."""
        if not self._part.is_read(self._progress):
            return False
        last = self._part.end is not None
        return not last or ended_plainly(self._stream, self._zone, self._progress) is not None

    def _mark(self) -> Mark:
        base, opened = self._part.base, self._ledger.opened
        return Mark(
            base + self._progress.offset,
            self._progress.records,
            self._progress.sections,
            self._transactions.listed,
            self._changes.commits,
            int(self._filled),
            tuple(Opened.of(session, one, base) for session, one in opened.items()),
        )


def _is_unexplained(page: Page) -> bool:
    """Return True if changes before the part may tell that a transaction was taken back."""
    for number, one in page.before.items():
        end = int(page.figures[END, number])
        prepared = int(page.figures[PREPARED_AT, number])
        halves = prepared > 0 and int(page.figures[CHANGES, number]) == 2 * prepared
        if one.carried and halves and end >= 0 and page.piece.codes[end] == Type.COMMIT:
            return True
    return False


class Whole(NamedTuple):
    """What only a reading of the whole log tells.

    ``by_hand`` returns the `hand_commits` of the log.
    """

    log: PlainLog
    names: TableLives
    by_hand: Callable[[], Collection[int]]


def join(whole: Whole, log: str, rests: Sequence[Rest], rows: int) -> Batches:
    """Yield the transactions that no part closed; ``rests`` in log order.

    Raises:
        NotClosedInPartsError: the whole log has to be read.
    """
    _require_chain(whole.log.stream, rests)
    _require_endings(rests)
    _require_names(whole.names, rests)
    doubtful = np.concatenate([one.doubtful for one in rests]).tolist()
    if doubtful and not set(doubtful).isdisjoint(whole.by_hand()):
        raise NotClosedInPartsError("a transaction was committed by hand")
    end, stream = rests[-1].end, whole.log.stream
    opened = (
        _unended(one).to_transaction(number, stream, log)
        for number, one in enumerate(end.opened, end.listed + 1)
    )
    for batch in batches_of_transactions(opened, Clock.NONE.value, rows):
        yield "transactions", batch


def _unended(one: Opened) -> Any:
    found, names = one.transaction(0), list(one.names)
    return logged(one.session, found.figures, names, found.last, open_state(names))


def _require_chain(stream: LogStream, rests: Sequence[Rest]) -> None:
    """Check that the parts are the whole log, each as it was told."""
    chained = bool(rests) and rests[0].begin == Mark()
    chained &= all(one.end == other.begin for one, other in pairwise(rests))
    if not chained:
        raise NotClosedInPartsError("the parts of the log do not follow each other")
    reached, keys = 0, keys_of(stream)
    for size, first, ids, own_keys in (one.pages for one in rests):
        part = slice(first, first + len(ids))
        same = stream.data_pages[part] == ids.tolist() and np.array_equal(keys[part], own_keys)
        if not same or not 0 <= first <= reached or size != stream.pages.page_size:
            raise NotClosedInPartsError("a part has other pages than the log")
        reached = first + len(ids)
    if reached != len(stream.data_pages):
        raise NotClosedInPartsError("the log goes on after its last part")


def _require_endings(rests: Sequence[Rest]) -> None:
    """Check what each part was told of the transactions that are open at its end."""
    known: dict[tuple[int, int], Ending] = {}
    for rest in reversed(rests):
        opened = [(one.session, one.begin) for one in rest.end.opened]
        found = [known.get(one, Ending(*one, 0, None)) for one in opened]
        if set(rest.told) != set(found):
            raise NotClosedInPartsError("a transaction ends in another way than expected")
        known |= {(one.session, one.begin): one for one in rest.ended}


def _require_names(lives: TableLives, rests: Sequence[Rest]) -> None:
    """Check the tables that the parts have used."""
    for rest in rests:
        unnamed, known = rest.unnamed.tolist(), rest.names.names
        if not lives.names.keys().isdisjoint(unnamed):
            raise NotClosedInPartsError("a table has a name that was not expected")
        found = lives.within([*unnamed, *known])
        if (found.births, found.build) != (rest.names.births, rest.names.build):
            raise NotClosedInPartsError("a table was made where that was not expected")
        for table, name in known.items():
            if lives.get(table) != name:
                raise NotClosedInPartsError(f"table {table} has another name than expected")
