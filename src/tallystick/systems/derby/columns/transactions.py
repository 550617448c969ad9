"""Transactions of plain records as Arrow batches, without an object for each.

In: chunks of records in log order. Out: batches of the `TRANSACTIONS` schema in order of first
records, which agree with ``transactions()``. Memory grows with the number of transactions: some
200 bytes for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tallystick.arrow import neighbours
from tallystick.arrow.columns import (
    bitmap,
    coded,
    nulls,
    numbers,
    offsets_of,
    table_batch,
    whole_transactions,
)
from tallystick.arrow.schemas import TRANSACTIONS, plain
from tallystick.arrow.texts import whole_text
from tallystick.records import Clock, Xid
from tallystick.storage.zeros import is_zero
from tallystick.systems.derby.columns.batches import global_ids
from tallystick.systems.derby.format import layout, operations
from tallystick.systems.derby.format.operations import OPERATIONS
from tallystick.systems.derby.read.files import LogFiles
from tallystick.systems.derby.read.transactions import (
    ABORTED,
    ACTIVE,
    COMMITTED,
    NO_BEGIN,
    PREPARED,
    STATES,
    Numbers,
)
from tallystick.systems.derby.runs.chunk import Chunk, Column, Runs
from tallystick.systems.derby.runs.pieces import Chain
from tallystick.systems.derby.runs.transactions import (
    BEGINS,
    BYTES,
    END,
    FIRST,
    GROUPS,
    INTERNAL,
    LAST,
    NUMBER,
    PROOF,
    PROVES,
    RECORDS,
    SUMMED,
    UNDONE,
    XID,
    begun_numbers,
    boots,
    last_of,
    summed,
)
from tallystick.systems.derby.runs.walk import Columns

BOOT = SUMMED
"""A further row of the sums: the number of the boot."""
_IDS = ("format_id", "gtrid", "bqual")
_STATES = pa.array([STATES[one].value for one in (ACTIVE, PREPARED, ABORTED, COMMITTED)])
_ACTIVE, _PREPARED, _ABORTED, _COMMITTED = range(4)
_PROOFS = pa.array(["", *(OPERATIONS[one].name for one in (operations.BEGIN, operations.END))])
_HOLES = pa.array(["", NO_BEGIN])
_BOOLEANS = pa.array(["false", "true"])
_PHASES = pa.array(["}", ',"phases":1}', ',"phases":2}'])


def plain_transactions(runs: Runs, name: str) -> TransactionColumns | None:
    """Return the transactions of a log of that name; None if it is not plain to its end."""
    found, chain = TransactionColumns(runs.log, name), Chain()
    for file in runs.log.files.values():
        if not chain.goes_on(file):
            return None
        position = layout.HEADER_SIZE
        for chunk in runs.chunks(file, layout.HEADER_SIZE):
            found.add(chunk)
            position = chunk.end
        if not is_zero(file.data, position, file.size):
            return None
        chain.add(file, position)
    return found


class TransactionColumns:
    """Puts the transactions of a log together."""

    def __init__(self, log: LogFiles, name: str) -> None:
        self._log, self._name = log, name
        self._boot = 1
        self._begun = Numbers()
        self._pieces: list[Columns] = []
        self._told: dict[int, list[tuple[int, Xid]]] = {}
        """By transaction, the global ids that checkpoints tell, and their instants."""

    def add(self, chunk: Chunk) -> None:
        """Take the next records."""
        self._note_told(chunk)
        for part in boots(self._begun, chunk):
            begun = begun_numbers(part)
            if not self._begun.isdisjoint(begun):
                self._boot += 1
                self._begun.clear()
            self._begun.update(begun)
            sums = summed(part)
            for row in (PROOF, XID):
                sums[row] |= layout.make_instant(part.file.number, 0)  # -1 stays as it is
            if sums.size:
                self._pieces.append(np.vstack([sums, np.full(sums.shape[1], self._boot)]))

    def _note_told(self, chunk: Chunk) -> None:
        for row, body in chunk.bodies.items():
            for one in body.fields.get("transactionTable") or ():
                if one["gid"] is not None:
                    told = int(chunk.instants[row]), one["gid"]
                    self._told.setdefault(one["xid"], []).append(told)

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the transactions in order of first records, at most ``rows`` in a batch."""
        if not self._pieces:
            return
        sums, files = _joined(np.concatenate(self._pieces, axis=1))
        for begin in range(0, sums.shape[1], rows):
            part = slice(begin, begin + rows)
            yield self._batch(sums[:, part], files.part(part))

    def _batch(self, sums: Columns, files: _FileLists) -> pa.RecordBatch:
        count, proven = sums.shape[1], sums[PROOF] >= 0
        ids = self._ids(sums)
        proofs = np.where(proven, 1 + (sums[PROVES] == operations.END), 0)
        found = whole_transactions(layout.SYSTEM_NAME, self._name, Clock.NONE, count) | {
            "key": pc.binary_join_element_wise(_text(sums[BOOT]), _text(sums[NUMBER]), "."),
            "state": coded(_states(sums[END]), _STATES),
            "transaction": numbers(np.ascontiguousarray(sums[NUMBER]), None),
            **ids,
            "records": numbers(np.ascontiguousarray(sums[RECORDS]), None),
            "bytes": numbers(np.ascontiguousarray(sums[BYTES]), None),
            "files": self._texts(files),
            "complete": pa.array(sums[BEGINS] != 0),
            "holes": coded((sums[BEGINS] == 0).astype(np.int8), _HOLES),
            "evidence_file": self._paths(np.where(proven, sums[PROOF] >> 32, -1)),
            "evidence_offset": numbers(sums[PROOF] & layout.POSITION_MASK, bitmap(proven)),
            "evidence_type": coded(proofs.astype(np.int8), _PROOFS),
            "attributes": _attributes(sums, ids["gtrid"].is_valid()),
        }
        return plain(table_batch(TRANSACTIONS, found, count), TRANSACTIONS)

    def _ids(self, sums: Columns) -> dict[str, pa.Array]:
        """Make the columns of the global id."""
        places = sums[XID]
        # By file: a place in a mapped file is only meaningful beside its bytes.
        # `concatenate` needs at least one array.
        order, parts = [np.empty(0, np.int64)], []
        for number in np.unique(places[places >= 0] >> 32).tolist():
            rows = np.flatnonzero((places >= 0) & (places >> 32 == number))
            data = np.frombuffer(self._log.files[number].data, np.uint8)
            order.append(rows)
            parts.append(global_ids(data, places[rows] & layout.POSITION_MASK))
        index = np.full(places.size, -1, np.int64)
        known = np.concatenate(order)
        index[known] = np.arange(known.size)
        taken = pa.array(index, mask=index < 0)
        found = {}
        for name in _IDS:
            kind = TRANSACTIONS.field(name).type
            values = [part[name].cast(kind) for part in parts]
            one = pa.concat_arrays(values).take(taken) if values else nulls(kind, places.size)
            found[name] = one
        return self._with_told(sums, found)

    def _with_told(self, sums: Columns, ids: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """Add the global ids that only checkpoints tell."""
        told: dict[int, Xid] = {}
        unknown = np.isin(sums[NUMBER], list(self._told)) & (sums[XID] < 0)
        for row in np.flatnonzero(unknown).tolist():
            number, first = sums[[NUMBER, FIRST], row].tolist()
            before = [xid for place, xid in self._told[number] if place <= first]
            if before:
                told[row] = before[-1]
        if not told:
            return ids
        found = {}
        for name, column in ids.items():
            values = column.to_pylist()
            for row, xid in told.items():
                values[row] = getattr(xid, name)
            found[name] = pa.array(values, column.type)
        return found

    def _paths(self, files: Column) -> pa.Array:
        """Make the paths of files; null where the number is negative."""
        known = np.array(list(self._log.files), np.int64)
        codes = np.searchsorted(known, files).astype(np.int32)
        paths = pa.array([whole_text(file.path) for file in self._log.files.values()], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=files < 0), paths)

    def _texts(self, files: _FileLists) -> pa.Array:
        paths = self._paths(files.values()).cast(pa.string())
        kind = TRANSACTIONS.field("files").type
        return pa.ListArray.from_arrays(offsets_of(files.counts), paths, kind)


class _FileLists(NamedTuple):
    """The files of each transaction: so many of ``numbers``, from an index on."""

    counts: Column
    begins: Column
    numbers: Column

    def part(self, rows: slice | Column) -> _FileLists:
        """Return those of some transactions."""
        return _FileLists(self.counts[rows], self.begins[rows], self.numbers)

    def values(self) -> Column:
        """Return the numbers of all of them, one after the other."""
        before = np.cumsum(self.counts) - self.counts
        # Adding the position in the result makes of each begin the indexes that follow it.
        index = np.repeat(self.begins - before, self.counts)
        found: Column = self.numbers[index + np.arange(index.size)]
        return found


def _joined(pieces: Columns) -> tuple[Columns, _FileLists]:
    """Join the sums over parts of transactions, and sort these by their first records."""
    # By boot, then by number: the last key of `lexsort` counts first. What is equal stays in log
    # order.
    pieces = pieces[:, np.lexsort((pieces[NUMBER], pieces[BOOT]))]
    # A transaction that spans chunks has a piece in each; it is one unless it begins anew.
    new = neighbours.firsts(pieces[NUMBER], pieces[BOOT]) | (pieces[BEGINS] != 0)
    starts = np.flatnonzero(new)
    sums = pieces[:, starts]
    for row in (RECORDS, BYTES, UNDONE):
        sums[row] = neighbours.sums(pieces[row], starts)
    sums[GROUPS] = np.bitwise_or.reduceat(pieces[GROUPS], starts)
    sums[LAST] = pieces[LAST, neighbours.lasts_of(starts, new.size)]
    proven = pieces[PROOF] >= 0
    for row, wanted in (
        (END, pieces[END] >= 0),
        (XID, pieces[XID] >= 0),
        (PROVES, proven),
        (PROOF, proven),
    ):
        sums[row] = last_of(wanted, pieces[row], starts)
    files = pieces[FIRST] >> 32
    # A file counts once for a transaction: where its pieces change to another one.
    adds = new | neighbours.firsts(files)
    counts = neighbours.sums(adds, starts)
    # First records have different instants, so no stable sort is needed.
    order = np.argsort(sums[FIRST])
    lists = _FileLists(counts, np.cumsum(counts) - counts, files[adds])
    return sums[:, order], lists.part(order)


def _states(ends: Column) -> NDArray[np.int8]:
    """Return the codes of states by the groups of the records that end or prepare."""
    codes = np.full(ends.size, _ACTIVE, np.int8)
    codes[ends >= 0] = _PREPARED
    last = (ends >= 0) & (ends & int(layout.Group.LAST) != 0)
    codes[last] = _ABORTED
    codes[last & (ends & int(layout.Group.COMMIT) != 0)] = _COMMITTED
    return codes


def _text(values: Column) -> pa.Array:
    return pa.array(values).cast(pa.string())


def _attributes(sums: Columns, branches: pa.Array) -> pa.Array:
    """Make the attributes as JSON; ``branches`` are those with a global id."""
    phases = np.where(sums[GROUPS] & int(layout.Group.PREPARE) != 0, 2, 1)
    phases[~np.asarray(branches)] = 0
    return pc.binary_join_element_wise(
        '{"boot":',
        _text(sums[BOOT]),
        ',"first":"(',
        _text(sums[FIRST] >> 32),
        ",",
        _text(sums[FIRST] & layout.POSITION_MASK),
        ')","last":"(',
        _text(sums[LAST] >> 32),
        ",",
        _text(sums[LAST] & layout.POSITION_MASK),
        ')","internal":',
        coded((sums[INTERNAL] != 0).astype(np.int8), _BOOLEANS).cast(pa.string()),
        ',"undone":',
        _text(sums[UNDONE]),
        coded(phases.astype(np.int8), _PHASES).cast(pa.string()),
        "",
    )
