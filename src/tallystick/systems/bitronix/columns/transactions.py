"""The global transactions of a journal as Arrow batches, without a Python object for each.

In: the records of both parts, plain ones in chunks. Out: batches of the `TRANSACTIONS` schema, the
rows of `read.transactions`. Memory grows with the gtrids of the journal, about 300 bytes for each.
Import this module only where a file is long: it loads NumPy and the compiler.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.columns import (
    byte_ranges,
    numbers,
    table_batch,
    texts_of,
    whole_transactions,
)
from tallystick.arrow.neighbours import lasts_of, ordinals, starts_of
from tallystick.arrow.schemas import TRANSACTIONS, plain
from tallystick.arrow.texts import whole_text
from tallystick.records import Clock, State
from tallystick.systems.bitronix.columns.attributes import gtrid_parts
from tallystick.systems.bitronix.format import layout
from tallystick.systems.bitronix.format.record import TransactionLogRecord, stored_names
from tallystick.systems.bitronix.read.files import DualFiles, Part
from tallystick.systems.bitronix.read.open_decisions import OpenDecisions
from tallystick.systems.bitronix.read.scan import RecordSpan
from tallystick.systems.bitronix.read.transactions import STATE_OF
from tallystick.systems.bitronix.runs.chunk import ROWS, Chunk
from tallystick.systems.bitronix.runs.known import (
    BYTES,
    DECISION,
    FILE,
    FILES,
    FIRST_TIME,
    LAST,
    NAMES,
    NONE,
    RECORDS,
    STATUS,
    TIME,
    KnownRecords,
)
from tallystick.systems.bitronix.runs.pieces import apply, pieces

if TYPE_CHECKING:
    from tallystick.systems.bitronix.read.scan import Stamp
    from tallystick.systems.bitronix.runs.pieces import Piece

    ReadPieces: TypeAlias = Callable[[Part, Stamp | None], Iterator[Piece | KnownRecords]]

_LISTS = TRANSACTIONS.field("participants").type
# The two digits of each byte as one number of 16 bits, in the order of memory on any machine.
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)


def transaction_batches(
    pair: DualFiles, log: str, clock: Clock, rows: int, read: ReadPieces = pieces
) -> Iterator[pa.RecordBatch]:
    """Yield what `read.transactions.transactions` yields, in batches of at most ``rows`` rows.

    Args:
        pair: both files.
        log: the path of the log.
        clock: that of its records.
        rows: of a batch, at most.
        read: gives the pieces of a file as `runs.pieces.pieces` does.
    """
    found, decisions = Gtrids(), OpenDecisions()
    for number, part in enumerate(pair.order()):
        for piece in read(part, pair.newest):
            apply(piece, decisions)
            found.add(piece, number)
    if not found.count:
        return
    gtrids, table = found.merged()
    known = pa.array(list(decisions), gtrids.type)
    # The number after the last open one stands for none.
    kept = pc.index_in(gtrids, value_set=known).fill_null(len(known)).to_numpy()
    made = GtridBatches(log, clock, pair, found.names.sets, decisions)
    for begin in range(0, len(gtrids), rows):
        some, place = gtrids.slice(begin, rows).cast(pa.binary()), slice(begin, begin + rows)
        yield made.batch(some, table[:, place], kept[place])


class NameSets:
    """Sets of names, numbered as they are met; 0 is that of no names."""

    def __init__(self) -> None:
        self.sets: list[tuple[str, ...]] = [()]
        self._numbers: dict[tuple[str, ...], int] = {(): 0}

    def number(self, names: Iterable[str]) -> int:
        """Return the number of a set of names."""
        key = tuple(sorted({*names}))
        number = self._numbers.setdefault(key, len(self.sets))
        if number == len(self.sets):
            self.sets.append(key)
        return number

    def stored(self, data: Any, begins: Any, ends: Any) -> Any:
        """Return the numbers of sets that stand in ``data``."""
        found = byte_ranges(data, begins, ends - begins).cast(pa.binary()).dictionary_encode()
        every = [self.number(stored_names(one)) for one in found.dictionary.to_pylist()]
        return np.array(every, np.int64)[found.indices.to_numpy()]

    def united(self, groups: Any, sets: Any, count: int) -> Any:
        """Return the union of the sets of each of ``count`` groups."""
        found = np.zeros(count, np.int64)
        known = sets != 0
        width = len(self.sets)
        # A pair as one number: `unique` over two columns is many times slower.
        groups, sets = np.divmod(np.unique(groups[known] * width + sets[known]), width)
        ranks = ordinals(groups)
        order = np.argsort(ranks, kind="stable")
        # A round for each further set of a group: mostly one, as names seldom change.
        for places in np.split(order, np.cumsum(np.bincount(ranks))[:-1]):
            found[groups[places]] = self._unions(found[groups[places]], sets[places])
        return found

    def _unions(self, ones: Any, others: Any) -> Any:
        width = len(self.sets)
        pairs, places = np.unique(ones * width + others, return_inverse=True)
        every = [
            self.number((*self.sets[pair // width], *self.sets[pair % width]))
            for pair in pairs.tolist()
        ]
        return np.array(every, np.int64)[places]


class Gtrids:
    """What the records of each gtrid come to, table by table in the order of the log."""

    def __init__(self) -> None:
        self.names = NameSets()
        self._gtrids: list[pa.Array] = []
        self._tables: list[Any] = []
        self._odd: list[tuple[int, int, TransactionLogRecord]] = []

    @property
    def count(self) -> int:
        """How many rows of gtrids there are."""
        return sum(map(len, self._gtrids)) + len(self._odd)

    def add(self, piece: Piece | KnownRecords, file: int) -> None:
        """Take the next piece of a file."""
        if not isinstance(piece, RecordSpan):
            # Before the chunk: rows of a gtrid have to come in the order of the log.
            self._add_odd()
            if isinstance(piece, KnownRecords):
                self._add_known(piece)
            else:
                self._add_chunk(piece, file)
        elif piece.whole is not None:
            self._odd.append((file * FILE + piece.offset, file, piece.whole))
            if len(self._odd) == ROWS:
                self._add_odd()

    def _add_chunk(self, chunk: Chunk, file: int) -> None:
        first, status, time, last, decision, records, size = chunk.by_gtrid()
        decision = np.where(decision < 0, NONE, decision + file * FILE)
        groups, marks = chunk.groups, chunk.groups.new_names
        stored = self.names.stored(chunk.window, *chunk.name_ranges(marks))
        names = self.names.united(groups.of_rows[marks].astype(np.int64), stored, groups.count)
        files = np.full(groups.count, 1 << file)
        firsts, _ = chunk.ends()
        starts = chunk.columns["offsets"][firsts] + layout.GTRID_OFFSET
        gtrids = byte_ranges(chunk.window, starts, chunk.columns["gtrid_sizes"][firsts])
        # With 64-bit offsets: those of the whole journal are joined into one array.
        self._gtrids.append(gtrids.cast(pa.large_binary()))
        last += file * FILE
        self._tables.append(
            np.stack([first, status, time, last, decision, records, size, files, names])
        )

    def _add_known(self, known: KnownRecords) -> None:
        left = known.left
        table = left.table[: NAMES + 1].copy()
        numbers = [self.names.number(one) for one in left.sets]
        table[NAMES] = np.array(numbers, np.int64)[table[NAMES]]
        self._gtrids.append(pa.array(left.gtrids, pa.large_binary()))
        self._tables.append(table)

    def _add_odd(self) -> None:
        """Add the records that are in no chunk, one row each."""
        rows = []
        for place, file, one in self._odd:
            decision = place if one.status == layout.COMMITTING else NONE
            names = self.names.number(one.unique_names)
            row = (one.time, one.status, one.time, place, decision, 1, one.size, 1 << file, names)
            rows.append(row)
        if rows:
            self._gtrids.append(pa.array([one.gtrid for *_, one in self._odd], pa.large_binary()))
            self._tables.append(np.array(rows, np.int64).T)
        self._odd = []

    def merged(self) -> tuple[pa.Array, Any]:
        """Return the gtrids in the order of their first records, and their table."""
        self._add_odd()
        if not self._gtrids:
            return pa.array([], pa.large_binary()), np.empty((NAMES + 1, 0), np.int64)
        found = pa.concat_arrays(self._gtrids).dictionary_encode()
        # Joined by now: the parts are given up before the tables are joined.
        self._gtrids = []
        groups = found.indices.to_numpy()
        tables = np.concatenate(self._tables, axis=1)
        self._tables = []
        # Stable: the rows of a gtrid stay in the order of the log, first and last among them.
        order = np.argsort(groups, kind="stable")
        starts = starts_of(groups[order])
        lasts = order[lasts_of(starts, len(order))]
        table = np.empty((len(tables), len(starts)), np.int64)
        table[FIRST_TIME] = tables[FIRST_TIME][order[starts]]
        table[STATUS : LAST + 1] = tables[STATUS : LAST + 1, lasts]
        for row, come_to in (
            (DECISION, np.maximum), (RECORDS, np.add), (BYTES, np.add), (FILES, np.bitwise_or),
        ):  # fmt: skip
            table[row] = come_to.reduceat(tables[row][order], starts)
        table[NAMES] = self.names.united(groups, tables[NAMES], len(starts))
        return found.dictionary, table


class GtridBatches:
    """Makes batches of gtrids with their table."""

    def __init__(
        self,
        log: str,
        clock: Clock,
        pair: DualFiles,
        sets: Sequence[tuple[str, ...]],
        decisions: OpenDecisions,
    ) -> None:
        self._log = log
        self._clock = clock
        one, two = (whole_text(part.path or "") for part in pair.order())
        self._paths = pa.array([one, two], pa.string())
        self._files = pa.array([(), (one,), (two,), (one, two)], _LISTS)
        self._names = pa.array(sets, _LISTS)
        self._single = pa.array(["true" if len(names) == 1 else "false" for names in sets])
        self._open = pa.array([*decisions.values(), ()], _LISTS)

    def batch(self, gtrids: pa.Array, table: Any, kept: Any) -> pa.RecordBatch:
        """Return a batch; ``kept``: the place of each gtrid among the open ones, or after them."""
        count, is_open = len(gtrids), kept < len(self._open) - 1
        decided = is_open & (table[DECISION] != NONE)
        places = np.where(decided, table[DECISION], table[LAST])
        names, statuses = pa.array(table[NAMES]), table[STATUS]
        columns = whole_transactions(layout.SYSTEM_NAME, self._log, self._clock, count) | {
            "key": _hex(gtrids, empty="(empty)"),
            "state": _states(statuses, is_open),
            "format_id": pa.repeat(pa.scalar(layout.FORMAT_ID, pa.int32()), count),
            "gtrid": gtrids,
            "name": pc.ascii_upper(_hex(gtrids, empty="")),
            "participants": self._names.take(names),
            "open_participants": self._open.take(pa.array(kept)),
            "first_time": numbers(table[FIRST_TIME], None),
            "last_time": numbers(table[TIME], None),
            "records": numbers(table[RECORDS], None),
            "bytes": numbers(table[BYTES], None),
            "files": self._files.take(pa.array(table[FILES])),
            "evidence_file": self._paths.take(pa.array(places // FILE)),
            "evidence_offset": numbers(places % FILE, None),
            "evidence_type": texts_of(
                np.where(decided, layout.COMMITTING, statuses), layout.status_name
            ),
            "attributes": _attributes(gtrids, statuses, self._single.take(names)),
        }
        return plain(table_batch(TRANSACTIONS, columns, count), TRANSACTIONS)


def _states(statuses: Any, kept: Any) -> pa.Array:
    ended = texts_of(statuses, lambda one: STATE_OF.get(one, State.UNKNOWN).value)
    return pc.if_else(pa.array(kept), State.COMMITTING.value, ended)


def _attributes(gtrids: pa.Array, statuses: Any, single: pa.Array) -> pa.Array:
    data, ends = _bytes_of(gtrids)
    # Gtrids may be shorter than the tail that is read from each of them.
    padded = np.append(data, np.zeros(layout.GTRID_TAIL.size, np.uint8))
    server_ids, times, sequences = gtrid_parts(padded, ends[:-1], np.diff(ends))
    return pc.binary_join_element_wise(
        '{"lastStatus":', texts_of(statuses, lambda one: json.dumps(layout.status_name(one))),
        ',"onePhase":', single,
        ',"serverId":', server_ids,
        ',"gtridTimestamp":', times,
        ',"gtridSequence":', sequences,
        "}", "",
    )  # fmt: skip


def _hex(gtrids: pa.Array, *, empty: str) -> pa.Array:
    """Return the bytes as hexadecimal digits, and ``empty`` where there are none."""
    data, ends = _bytes_of(gtrids)
    digits, sizes = pa.py_buffer(_HEX[data]), pa.py_buffer((2 * ends).astype(np.int32))
    texts = pa.Array.from_buffers(pa.string(), len(gtrids), [None, sizes, digits])
    none = np.diff(ends) == 0
    return pc.if_else(pa.array(none), empty, texts) if none.any() else texts


def _bytes_of(gtrids: pa.Array) -> tuple[Any, Any]:
    """Return all bytes, and where each gtrid ends in them, after a zero."""
    _, ends, data = gtrids.buffers()
    ends = np.frombuffer(ends, np.int32)[gtrids.offset :][: len(gtrids) + 1].astype(np.int64)
    return np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]], ends - ends[0]
