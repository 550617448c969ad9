"""One transaction at work on a page store.

In: reads and writes of rows, savepoints, an end. Out: an overlay of changes that nobody else
sees; at commit its rows go to the redo log, and once they are durable to the pages.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tallystick.errors import RecordTooLargeError, TransactionUsageError
from tallystick.services.page_store.layout import KEY_MAX, KEY_MIN, ROW_MAX
from tallystick.services.page_store.locks import Row

if TYPE_CHECKING:
    from tallystick.services.page_store.store import PageStore

_BATCH_ROWS = 256


class Session:
    """A transaction: a context manager that commits, or rolls back on an exception.

    Reads see what is committed, and this transaction's own changes. A row that it changed
    stays locked for other writers until its end. For one thread at a time.
    """

    def __init__(self, store: PageStore, number: int) -> None:
        self.number = number
        self.prepared_as = ""
        self._store = store
        self._overlay: dict[Row, bytes | None] = {}
        self._history: list[tuple[Row, bool, bytes | None]] = []
        self._open = True

    def table(self, name: str) -> Table:
        """The rows of a table, made by `PageStore.create_table`. Raises `KeyError`."""
        return Table(self, self._store.table_id(name))

    def savepoint(self) -> int:
        """A point that `rollback_to` goes back to."""
        self._require_open()
        return len(self._history)

    def rollback_to(self, savepoint: int) -> None:
        """Undo what this transaction changed since; its locks stay."""
        self._require_open()
        while len(self._history) > savepoint:
            row, existed, old = self._history.pop()
            if existed:
                self._overlay[row] = old
            else:
                # The row keeps its lock and with it its place; nothing is logged for it.
                self._overlay[row] = self._store.read(*row)

    def prepare(self, name: str) -> None:
        """Make the transaction durable and able to go either way; it can outlive a crash as
        in doubt under ``name``. Only `commit` or `rollback` may follow."""
        self._require_open()
        self._store.prepare(self, name)
        self.prepared_as = name

    @property
    def prepared(self) -> bool:
        """True after `prepare`."""
        return bool(self.prepared_as)

    def commit(self) -> None:
        """Return when every change is durable and visible."""
        self._require_live()
        self._open = False
        self._store.commit(self)

    def rollback(self) -> None:
        """Forget every change."""
        self._require_live()
        self._open = False
        self._store.rollback(self)

    @property
    def changes(self) -> dict[Row, bytes | None]:
        """What is to be written: rows by table and key, None for removed ones."""
        return self._overlay

    def get(self, table: int, key: int) -> bytes | None:
        """The row as this transaction sees it."""
        row = (table, key)
        if row in self._overlay:
            return self._overlay[row]
        return self._store.read(table, key)

    def put(self, table: int, key: int, value: bytes | None) -> None:
        """Change a row, or remove it with None. Raises `BusyError` if another has it locked."""
        self._require_open()
        if not KEY_MIN <= key <= KEY_MAX:
            raise KeyError(f"key {key} is not a signed 64-bit number")
        if value is not None and len(value) > ROW_MAX:
            raise RecordTooLargeError(
                "the row is too long", expected=f"at most {ROW_MAX} bytes", found=str(len(value))
            )
        row = (table, key)
        if row not in self._overlay:
            self._store.lock_row(self.number, row)
            self._history.append((row, False, None))
        else:
            self._history.append((row, True, self._overlay[row]))
        self._overlay[row] = value

    def scan(self, table: int, start: int, stop: int | None) -> Iterator[tuple[int, bytes]]:
        """Rows with ``start <= key < stop`` in order, own changes included."""
        own = sorted(
            key
            for other, key in self._overlay
            if other == table and key >= start and (stop is None or key < stop)
        )
        following: int | None = start
        while following is not None:
            rows, following = self._store.batch(table, following, _BATCH_ROWS)
            merged = dict(rows)
            while own and (following is None or own[0] < following):
                key = own.pop(0)
                merged.pop(key, None)
                if (value := self._overlay[table, key]) is not None:
                    merged[key] = value
            for key in sorted(merged):
                if stop is not None and key >= stop:
                    return
                yield key, merged[key]

    def _require_open(self) -> None:
        self._require_live()
        if self.prepared:
            raise TransactionUsageError(
                "the transaction is prepared", advice="Only commit() or rollback() may follow"
            )

    def _require_live(self) -> None:
        if not self._open:
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
        if self._open:
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

    def __iter__(self) -> Iterator[int]:
        return (key for key, _ in self.range())

    def __len__(self) -> int:
        return sum(1 for _ in self.range())

    def range(self, start: int = KEY_MIN, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Keys and rows with ``start <= key < stop``, in order."""
        return self._session.scan(self._table, start, stop)
