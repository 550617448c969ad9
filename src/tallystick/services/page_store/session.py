"""One transaction at work on a page store.

In: reads and writes of rows, savepoints, an end. Out: an overlay of changes that nobody else
sees; at commit its rows go to the redo log, and once they are durable to the pages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, MutableMapping
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tallystick.errors import RecordTooLargeError, TransactionUsageError
from tallystick.services.page_store.locks import Row
from tallystick.services.page_store.pages.layout import KEY_MAX, KEY_MIN, ROW_MAX

if TYPE_CHECKING:
    from tallystick.services.page_store.transactions import Transactions

_BATCH_ROWS = 256
_BATCH_BYTES = 1 << 20
"""A scan holds so much at once, or one longer row."""


class Session:
    """A transaction: a context manager that commits, or rolls back on an exception.

    Reads see what is committed, and this transaction's own changes. A row that it changed
    stays locked for other writers until its end. For one thread at a time.
    """

    def __init__(self, work: Transactions, number: int) -> None:
        self.number = number
        self.prepared_as = ""
        self._work = work
        self.changes: dict[Row, bytes | None] = {}
        """What is to be written: rows by table and key, None for removed ones."""
        self.locked: set[Row] = set()
        self._history: list[tuple[Row, bool, bytes | None]] = []
        self._savepoints = False
        self._live = True

    def table(self, name: str) -> Table:
        """The rows of a table, made by `PageStore.create_table`. Raises `KeyError`."""
        return Table(self, self._work.table_id(name))

    def savepoint(self) -> int:
        """A point that `rollback_to` goes back to."""
        self._require_open()
        self._savepoints = True
        return len(self._history)

    def rollback_to(self, savepoint: int) -> None:
        """Undo what this transaction changed since; its locks stay."""
        self._require_open()
        while len(self._history) > savepoint:
            row, existed, old = self._history.pop()
            if existed:
                self.changes[row] = old
            else:
                del self.changes[row]

    def prepare(self, name: str) -> None:
        """Make the transaction durable and able to go either way; it can outlive a crash as
        in doubt under ``name``. Only `commit` or `rollback` may follow."""
        self._require_open()
        if not name:
            raise TransactionUsageError("a transaction is prepared under a name")
        self._work.prepare(self, name)
        self.prepared_as = name

    @property
    def prepared(self) -> bool:
        """True after `prepare`."""
        return bool(self.prepared_as)

    @property
    def over(self) -> bool:
        """True once it was committed or rolled back."""
        return not self._live

    def commit(self) -> None:
        """Return when every change is durable and visible."""
        self._end()
        self._work.commit(self)

    def rollback(self) -> None:
        """Forget every change."""
        self._end()
        self._work.rollback(self)

    def get(self, table: int, key: int) -> bytes | None:
        """The row as this transaction sees it."""
        if not self._live:
            self._require_live()
        row = (table, key)
        if row in self.changes:
            return self.changes[row]
        return self._work.read(table, key)

    def lock(self, table: int, key: int) -> Row:
        """Keep others from changing a row until the end. Raises `BusyError` if one has it."""
        if self.prepared_as or not self._live:
            self._require_open()
        row = (table, index(key))
        if row not in self.locked:
            if not KEY_MIN <= key <= KEY_MAX:
                raise KeyError(f"key {key} is not a signed 64-bit number")
            self._work.lock_row(self.number, row)
            self.locked.add(row)
        return row

    def put(self, table: int, key: int, value: bytes | None) -> None:
        """Change a row, or remove it with None. Raises `BusyError` if another has it locked."""
        if value is not None and len(value) > ROW_MAX:
            raise RecordTooLargeError(
                "the row is too long", expected=f"at most {ROW_MAX} bytes", found=str(len(value))
            )
        row = self.lock(table, key)
        if self._savepoints:
            self._history.append((row, row in self.changes, self.changes.get(row)))
        self.changes[row] = value

    def scan(self, table: int, start: int, stop: int | None) -> Iterator[tuple[int, bytes]]:
        """Rows with ``start <= key < stop`` in order, own changes included."""
        self._require_live()
        end = KEY_MAX + 1 if stop is None else stop
        own = self._own_keys(table, start, end)
        following: int | None = start
        while following is not None and following < end:
            rows, following = self._work.batch(table, following, _BATCH_ROWS, _BATCH_BYTES)
            here = end if following is None else following
            committed = dict(rows)
            first = bisect_left(own, here)
            for key in sorted(committed.keys() | own[:first]):
                if key >= end:
                    return
                # As it is now: it may have changed while the caller looked at rows before it.
                row = self.changes.get((table, key), committed.get(key))
                if row is not None:
                    yield key, row
            del own[:first]

    def _own_keys(self, table: int, start: int, end: int) -> list[int]:
        return sorted([key for other, key in self.changes if other == table and start <= key < end])

    def _end(self) -> None:
        # Under a lock: somebody else may settle a prepared transaction meanwhile.
        with self._work.ending:
            self._require_live()
            self._live = False

    def _require_open(self) -> None:
        self._require_live()
        if self.prepared:
            raise TransactionUsageError(
                "the transaction is prepared", advice="Only commit() or rollback() may follow"
            )

    def _require_live(self) -> None:
        if not self._live:
            raise TransactionUsageError(
                "the transaction is over", advice="Begin another with store.begin()"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.over:
            (self.commit if error is None else self.rollback)()


class Table(MutableMapping[int, bytes]):
    """A table in a transaction: a mapping of signed 64-bit keys to rows, ordered by key."""

    def __init__(self, session: Session, table: int) -> None:
        self._session = session
        self._table = table

    def __getitem__(self, key: int) -> bytes:
        row = self._session.get(self._table, key)
        if row is None:
            raise KeyError(key)
        return row

    def __setitem__(self, key: int, row: bytes) -> None:
        self._session.put(self._table, key, bytes(row))

    def __delitem__(self, key: int) -> None:
        if self._session.get(self._table, key) is None:
            raise KeyError(key)
        self._session.put(self._table, key, None)

    def for_update(self, key: int) -> bytes:
        """The row, locked first: nobody changes it between this read and a write that rests on
        it. Raises `KeyError`; the lock stays even so."""
        self._session.lock(self._table, key)
        return self[key]

    def clear(self) -> None:
        """Remove every row; in one pass, where a mapping would look for the first one each
        time."""
        for key in self:
            self._session.put(self._table, key, None)

    def __iter__(self) -> Iterator[int]:
        return (key for key, _ in self.range())

    def __len__(self) -> int:
        return sum(1 for _ in self.range())

    def range(self, start: int = KEY_MIN, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Keys and rows with ``start <= key < stop``, in order. Rows are read some at a time,
        each time as they are committed then; this transaction may change rows meanwhile, and
        ones that it adds may be left out."""
        return self._session.scan(self._table, start, stop)
