"""The changes of a log as Arrow batches, without a Python object per change.

In: the chunks of the log and the names of its tables. Out: batches of the `CHANGES` schema, the
rows of `changes()`, or of `FATED`, those of `fated_changes()`. Memory: a chunk of the log, and the
changes of transactions that are open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.columns import (
    bitmap,
    coded,
    constant,
    joined_bytes,
    numbers,
    offsets_of,
    sliced,
    table_batch,
    texts_of,
)
from tallystick.arrow.neighbours import among, ordinals
from tallystick.arrow.schemas import CHANGES, FATED, plain
from tallystick.records import Clock, Fate
from tallystick.roles import branch_of
from tallystick.systems.h2.columns import kernels
from tallystick.systems.h2.columns.batches import KIND_NAMES
from tallystick.systems.h2.columns.row_texts import RowTexts
from tallystick.systems.h2.format.catalogue import TableLives
from tallystick.systems.h2.format.entries import Type
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.format.values.shown import Presentation
from tallystick.systems.h2.read.changes import FATES
from tallystick.systems.h2.read.transactions import LoggedTransaction
from tallystick.systems.h2.runs.chunk import Chunk
from tallystick.systems.h2.runs.pieces import LogPieces
from tallystick.systems.h2.runs.sessions import CHANGES as COUNT
from tallystick.systems.h2.runs.sessions import END, NONE, PREPARED_AT, SLOT
from tallystick.systems.h2.runs.transactions import ChunkTransactions, Ledger
from tallystick.systems.h2.runs.walk import BODY_LENGTH, BODY_START, CODE, NUMBER

_FATES = [*Fate]
_FATE_NAMES = pa.array([one.value for one in Fate])
_ALL = 1 << 62
"""More changes than a transaction has."""


@dataclass(slots=True)
class _Rows:
    """Changes, an item of each column for each.

    Attributes:
        data: the bytes of their rows.
        codes: the types of their records.
        tables: the lives of their tables, as `TableLives.numbers` returns them.
        keys: the row keys.
        offsets: where the records are in the file.
        starts: where the rows are in ``data``.
        lengths: the bytes of each row; -1 stands for no row.
        positions: where the records begin in the stream.
    """

    data: Any
    codes: Any
    tables: Any
    keys: Any
    offsets: Any
    starts: Any
    lengths: Any
    positions: Any

    def chosen(self, places: Any) -> _Rows:
        """Return some of the changes."""
        columns = (
            self.codes, self.tables, self.keys, self.offsets, self.starts, self.lengths,
            self.positions,
        )  # fmt: skip
        return _Rows(self.data, *(one[places] for one in columns))

    def copied(self) -> _Rows:
        """Return the changes with bytes of their own."""
        sizes = np.maximum(self.lengths, 0)
        ends = np.cumsum(sizes)
        # A view would keep all bytes of the chunk for one open transaction.
        data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        kernels.gather(self.data, self.starts, self.lengths, data)
        return _Rows(
            data, self.codes, self.tables, self.keys, self.offsets, ends - sizes, self.lengths,
            self.positions,
        )  # fmt: skip


@dataclass(slots=True)
class _Endings:
    """Transactions whose changes are given where a chunk ends them, in the order of their ends.

    The rank of a transaction is its number among these, from 0.

    Attributes:
        commits: the number of each one's commit; 0 of one that is not committed.
        limits: how many of each one's changes count, the first ones; the rest takes these back.
        fates: what becomes of each one's changes, by number in `_FATES`.
        sessions: the sessions of the chunk.
        slots: the place of each one's session among these.
        counts: how many changes each has before the chunk.
        gtrids: by rank, the global ids of those that have one.
    """

    commits: Any
    limits: Any
    fates: Any
    sessions: pa.Array
    slots: Any
    counts: Any
    gtrids: dict[int, bytes] = field(default_factory=dict)
    before: dict[int, list[_Rows]] = field(default_factory=dict)
    """By rank, the changes before the chunk of those that have any: a `_Rows` of each chunk."""


class ChangeColumns:
    """Makes batches of the changes of one log.

    Args:
        log: the log.
        lives: its tables.
        path: the name of the log.
        presentation: shows values.
        lost: where records begin that a restart drops; None leaves out all that is not committed.
    """

    def __init__(
        self,
        log: LogPieces,
        lives: TableLives,
        path: str,
        presentation: Presentation,
        lost: Collection[int] | None = None,
    ) -> None:
        self._log = log
        self._lives = lives
        self._path = path
        self._texts = RowTexts(lives, lives.zone(log.zone), presentation)
        self._offsets = kernels.file_offsets(log.stream)
        self._kept: dict[int, list[_Rows]] = {}
        """By session, the changes so far of its open transaction: a `_Rows` of each chunk."""
        self._commits = 0
        self._lost = lost

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all changes as their transactions end, in batches of at most ``rows`` rows.

        In the `CHANGES` schema those that are committed, else all in the `FATED` schema.
        """
        ledger = Ledger(self._log)
        for chunk in self._log.chunks():
            yield from _joined(self._batches_of(ledger.add(chunk)), rows)
        if self._lost is not None:
            for one in ledger.rest():
                yield from _joined(self._batches_of_open(one), rows)

    def _batches_of(self, found: ChunkTransactions) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the transactions that a chunk ends, one transaction after the other.

        Those in earlier chunks, which were kept, come before those in this one.
        """
        changes = self._changes(found.chunk)
        places = np.flatnonzero(found.chunk.changes)
        ended = found.ended()
        committed = found.committed(ended)
        if self._lost is None:
            ended, committed = ended[committed], committed[committed]
        endings = self._endings(found, ended, committed)
        ranks = np.full(found.figures.shape[1], NONE, np.int64)
        ranks[ended] = np.arange(len(ended))
        of_rows = ranks[found.numbers[places]]
        # After `_endings`, which takes what was kept of transactions that end here.
        self._keep(found, changes, places)
        order = np.flatnonzero(of_rows != NONE)
        order = order[np.argsort(of_rows[order], kind="stable")]
        rows, of_rows = changes.chosen(places[order]), of_rows[order]
        places = ordinals(of_rows) + endings.counts[of_rows]
        done = 0
        for rank, kept in sorted(endings.before.items()):
            # What was kept comes before the transaction's own changes, and has its bytes elsewhere:
            # a batch ends here.
            border = int(np.searchsorted(of_rows, rank))
            part = slice(done, border)
            yield from self._batch(rows.chosen(part), of_rows[part], places[part], endings)
            yield from self._batches_kept(kept, rank, endings)
            done = border
        part = slice(done, None)
        yield from self._batch(rows.chosen(part), of_rows[part], places[part], endings)

    def _batches_kept(
        self, kept: list[_Rows], rank: int, endings: _Endings
    ) -> Iterator[pa.RecordBatch]:
        before = 0
        for one in kept:
            count = len(one.codes)
            own = np.arange(before, before + count)
            yield from self._batch(one, np.full(count, rank), own, endings)
            before += count

    def _batches_of_open(self, one: LoggedTransaction) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a transaction that did not end."""
        xid, none = one.xid, np.zeros(1, np.int64)
        endings = _Endings(
            none, np.full(1, _ALL), np.full(1, _FATES.index(FATES[one.state])),
            pa.array([str(one.session)]), none, none, {} if xid is None else {0: xid.gtrid},
        )  # fmt: skip
        yield from self._batches_kept(self._kept.get(one.session, []), 0, endings)

    def _changes(self, chunk: Chunk) -> _Rows:
        """Return every record of a chunk as if it was a change; callers choose those that are."""
        table = chunk.table
        lengths = np.where(chunk.codes == Type.ADD, table[BODY_LENGTH], -1)
        positions = chunk.starts
        return _Rows(
            chunk.data,
            table[CODE],
            self._lives.numbers(chunk.tables, positions),
            table[NUMBER],
            self._offsets(positions),
            table[BODY_START],
            lengths,
            positions,
        )

    def _endings(self, found: ChunkTransactions, ended: Any, committed: Any) -> _Endings:
        """Return what is known of transactions that a chunk ends."""
        commits = self._commits + np.cumsum(committed)
        self._commits += int(committed.sum())
        named = np.isin(ended, [number for number, names in found.names.items() if names])
        # The inverse of each change follows the prepare record.
        undone = named & ~committed
        endings = _Endings(
            np.where(committed, commits, 0),
            np.where(undone, found.figures[PREPARED_AT][ended], _ALL),
            np.where(committed, *map(_FATES.index, (Fate.COMMITTED, Fate.UNDONE))),
            pa.array(map(str, found.sessions), pa.string(), size=len(found.sessions)),
            found.figures[SLOT][ended],
            np.zeros(len(ended), np.int64),
        )
        for rank in np.flatnonzero(np.isin(ended, [*found.names, *found.before])).tolist():
            number = int(ended[rank])
            names = found.names.get(number)
            xid = branch_of(names[-1]) if names else None
            if xid is not None:
                endings.gtrids[rank] = xid.gtrid
            if number in found.before:
                session = found.sessions[int(endings.slots[rank])]
                endings.counts[rank] = found.before[number].figures[COUNT]
                endings.before[rank] = self._kept.get(session, [])
        return endings

    def _keep(self, found: ChunkTransactions, changes: _Rows, places: Any) -> None:
        """Drop the changes of what ends, and keep those of what is open after the chunk."""
        ends, slots = found.figures[END].tolist(), found.figures[SLOT].tolist()
        numbers = found.numbers[places]
        for number in found.before:
            if ends[number] != NONE:
                self._kept.pop(found.sessions[slots[number]], None)
        for number, end in enumerate(ends):
            if end == NONE:
                rows = changes.chosen(places[numbers == number])
                self._kept.setdefault(found.sessions[slots[number]], []).append(rows.copied())

    def _batch(
        self, rows: _Rows, ranks: Any, ordinals: Any, endings: _Endings
    ) -> Iterator[pa.RecordBatch]:
        """Yield a batch of changes, without those that do not count; none if all are left out.

        Args:
            rows: the changes.
            ranks: the rank in ``endings`` of the transaction of each.
            ordinals: the number of each in its transaction, from 0.
            endings: the transactions.
        """
        if not (counting := ordinals < endings.limits[ranks]).all():
            rows, ranks, ordinals = rows.chosen(counting), ranks[counting], ordinals[counting]
        if not (count := len(ranks)):
            return
        commits = endings.commits[ranks]
        added = rows.lengths >= 0
        columns: dict[str, Any] = {
            "system": constant(SYSTEM_NAME, count),
            "log": constant(self._path, count),
            "file": constant(self._log.stream.pages.file, count),
            "clock": constant(Clock.NONE.value, count),
            "commit_sequence": numbers(commits, None),
            "ordinal": numbers(np.where(commits, ordinals, 0), None),
            "kind": KIND_NAMES.take(pa.array(rows.codes)),
            "collection": texts_of(rows.tables, self._lives.name),
            "key": _keys(rows),
            "transaction": endings.sessions.take(pa.array(endings.slots[ranks])),
            "after": _bodies(rows, added),
            "values": self._texts.column(
                rows.data, rows.starts, rows.lengths, rows.tables, rows.positions
            ),
            "offset": numbers(rows.offsets, None),
        }
        if endings.gtrids:
            gtrids = map(endings.gtrids.get, ranks.tolist())
            columns["gtrid"] = pa.array(gtrids, pa.binary(), size=count)
        schema = CHANGES
        if self._lost is not None:
            lost = among(rows.positions, self._lost)
            fates = np.where(lost, _FATES.index(Fate.LOST), endings.fates[ranks])
            columns["fate"], schema = coded(fates, _FATE_NAMES), FATED
        yield plain(table_batch(schema, columns, count), schema)


def _joined(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches, which are put together, in batches of at most ``rows`` rows."""
    found = [*batches]
    if len(found) > 1:
        found = pa.Table.from_batches(found).combine_chunks().to_batches()
    for batch in found:
        yield from sliced(batch, rows)


def _keys(rows: _Rows) -> pa.Array:
    texts = pa.array(rows.keys).cast(pa.string())
    emptied = rows.codes == Type.TRUNCATE
    return pc.if_else(pa.array(emptied), "", texts) if emptied.any() else texts


def _bodies(rows: _Rows, added: Any) -> pa.Array:
    """Return the bytes of added rows."""
    ends = offsets_of(rows.lengths)
    data = np.empty(int(ends[-1]), np.uint8)
    kernels.gather(rows.data, rows.starts, rows.lengths, data)
    return joined_bytes(pa.binary(), ends, data, bitmap(added))
