"""The transactions of a log as Arrow batches, without a Python object per transaction.

In: the chunks of the log. Out: batches of the `TRANSACTIONS` schema, the rows of `transactions()`.
Transactions that were prepared, or ended by hand, become objects first. Memory grows with open
transactions only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.columns import (
    constant,
    numbers,
    one_each,
    repeated,
    table_batch,
    texts_of,
    whole_transactions,
)
from tallystick.arrow.schemas import TRANSACTIONS, batches_of_transactions, plain
from tallystick.records import Clock, State, Transaction
from tallystick.systems.h2.columns.kernels import file_offsets
from tallystick.systems.h2.format.entries import Type
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.read.transactions import LoggedTransaction
from tallystick.systems.h2.runs.pieces import LogPieces
from tallystick.systems.h2.runs.sessions import BYTES, CHANGES, RECORDS, SLOT
from tallystick.systems.h2.runs.transactions import ChunkTransactions, Endings, Ledger

_SESSION, _KEY, _RECORDS, _BYTES, _CHANGES, _OFFSET = range(6)
"""Rows of the table of committed transactions; a key counts the transactions of the log."""


class TransactionColumns:
    """Makes batches of the transactions of one log.

    ``by_hand`` returns the `hand_commits` of the log; it is called if there may be some.
    """

    def __init__(self, log: LogPieces, path: str, by_hand: Callable[[], Collection[int]]) -> None:
        self._log = log
        self._path = path
        self._by_hand = by_hand
        self._offsets = file_offsets(log.stream)
        self._listed = 0
        self._tables: list[Any] = []
        self._objects: list[Transaction] = []

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all transactions in batches of at most ``rows`` rows, open ones last."""
        ledger, filled = Ledger(self._log), False
        for chunk in self._log.chunks():
            found = ledger.add(chunk)
            self._take(found, found.endings(filled, self._by_hand))
            filled = int(chunk.codes[-1]) == Type.NOOP
            yield from self._gathered(rows, rows)
        yield from self._gathered(rows, 1)
        rest = (self._object(one) for one in ledger.rest())
        yield from batches_of_transactions(rest, Clock.NONE.value, rows)

    def _take(self, found: ChunkTransactions, ends: Endings) -> None:
        """Take what ends in a chunk."""
        alone = ends.by_hand | ends.named
        keys = np.arange(len(alone)) + self._listed + 1
        logged = zip(keys[alone].tolist(), found.logged(ends.chosen(alone)), strict=True)
        self._objects += [self._object(one, key) for key, one in logged]
        self._tables.append(self._table(found, ends.chosen(~alone), keys[~alone]))
        self._listed += len(alone)

    def _object(self, one: LoggedTransaction, key: int = 0) -> Transaction:
        """Return a transaction as an object; without a ``key`` it gets the next one."""
        if not key:
            self._listed += 1
        return one.to_transaction(key or self._listed, self._log.stream, self._path)

    def _table(self, found: ChunkTransactions, ends: Endings, keys: Any) -> Any:
        """Return the rows `_SESSION` to `_OFFSET` of transactions that end, a column for each."""
        figures, offsets = (
            found.figures[:, ends.numbers],
            self._offsets(found.chunk.starts[ends.rows]),
        )
        sessions = np.array(found.sessions, np.int64)[figures[SLOT]]
        return np.stack([sessions, keys, *figures[[RECORDS, BYTES, CHANGES]], offsets])

    def _gathered(self, rows: int, least: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of what was taken, as soon as it has ``least`` rows."""
        if sum(one.shape[1] for one in self._tables) >= least:
            table = np.concatenate(self._tables, axis=1)
            whole = table.shape[1] // least * least
            for begin in range(0, whole, rows):
                yield self._batch(table[:, begin : min(begin + rows, whole)])
            self._tables = [table[:, whole:]]
        if len(self._objects) >= least:
            yield from batches_of_transactions(self._objects, Clock.NONE.value, rows)
            self._objects = []

    def _batch(self, table: Any) -> pa.RecordBatch:
        count, file = table.shape[1], self._log.stream.pages.file
        sessions = texts_of(table[_SESSION], str)
        keys = pa.array(table[_KEY]).cast(pa.string())
        columns = whole_transactions(SYSTEM_NAME, self._path, Clock.NONE, count) | {
            "key": pc.binary_join_element_wise(sessions, keys, "."),
            "state": constant(State.COMMITTED.value, count),
            "transaction": numbers(table[_SESSION], None),
            "records": numbers(table[_RECORDS], None),
            "bytes": numbers(table[_BYTES], None),
            "files": one_each(repeated(file, count)),
            "evidence_file": constant(file, count),
            "evidence_offset": numbers(table[_OFFSET], None),
            "evidence_type": constant(Type.COMMIT.name, count),
            "attributes": texts_of(table[_CHANGES], '{{"changes":{}}}'.format),
        }
        return plain(table_batch(TRANSACTIONS, columns, count), TRANSACTIONS)
