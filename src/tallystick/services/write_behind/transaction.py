"""A write-behind transaction: operations on rows, committed at the end of a ``with`` block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

from tallystick.errors import LogWriteError, TransactionUsageError
from tallystick.roles import Operation, OperationCode
from tallystick.services.write_behind.targets.rows import Row, encode_row
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.owned_lock import WaitRefusedError

_INSERT, _UPDATE, _DELETE = OperationCode.INSERT, OperationCode.UPDATE, OperationCode.DELETE


class Numbered(Protocol):
    """A transaction that is told its number once it is in the log."""

    number: int | None


Commit = Callable[[Numbered, Sequence[Operation], str], int]
"""Commits the operations of a transaction under a reference; returns its number."""


class WriteBehindTransaction(Uncopied):
    """Collect operations, and commit them together.

    ``number`` is set once they are in the log, also if `commit` is interrupted after that. A
    ``with`` block that raises commits nothing. Keys and values are rows (mappings of columns), or
    bytes that the targets understand. An operation is for every target of the transaction unless
    ``target`` names one.
    """

    def __init__(
        self, commit: Commit, reference: str, serializer: Callable[[Any], Any] | None = None
    ) -> None:
        self.number: int | None = None
        self.reference = reference
        self.operations: list[Operation] = []
        self._commit = commit
        self._serializer = serializer

    def insert(
        self, table: str, key: Row | bytes, value: Row | bytes, *, target: str | None = None
    ) -> None:
        """Put a new row into a table.

        Args:
            table: the name of the table.
            key: the columns of its key by name, or bytes.
            value: its other columns by name, or bytes.
            target: the one target that gets it; by default all.

        Raises:
            TransactionUsageError: The transaction is committed, or a value has no encoding.
        """
        self.put(_INSERT, table, key, value, target)

    def update(
        self, table: str, key: Row | bytes, value: Row | bytes, *, target: str | None = None
    ) -> None:
        """Change columns of a row; see `insert`."""
        self.put(_UPDATE, table, key, value, target)

    def delete(self, table: str, key: Row | bytes, *, target: str | None = None) -> None:
        """Remove a row; see `insert`."""
        self.put(_DELETE, table, key, None, target)

    def send(self, topic: str, body: bytes, *, key: bytes = b"", target: str | None = None) -> None:
        """Send bytes to targets that are functions.

        Args:
            topic: what they are about.
            body: the bytes.
            key: those with the same key arrive in order.
            target: the one target that gets them; by default all.

        Raises:
            TransactionUsageError: The transaction is committed.
        """
        self.put(OperationCode.OPAQUE, topic, key, body, target)

    def put(
        self,
        code: OperationCode,
        collection: str,
        key: Row | bytes,
        value: Row | bytes | None,
        target: str | None = None,
    ) -> None:
        """Add an operation of any kind.

        Args:
            code: its kind.
            collection: the table or topic.
            key: the columns of the key by name, or bytes.
            value: other columns by name, or bytes; None of a deletion.
            target: the one target that gets it; by default all.

        Raises:
            TransactionUsageError: The transaction is committed, or a value has no encoding.
        """
        if self.number is not None:
            raise TransactionUsageError("the transaction is committed")
        encoded = None if value is None else encode_row(value, self._serializer)
        data = encode_row(key, self._serializer)
        self.operations.append(Operation(code, collection, data, encoded, target))

    def commit(self) -> int:
        """Commit now.

        Returns:
            The transaction's number.

        Raises:
            TransactionUsageError: It is committed already; see also `WriteBehind.commit`.
        """
        if self.number is not None:
            raise TransactionUsageError("the transaction is committed already")
        try:
            return self._commit(self, self.operations, self.reference)
        except WaitRefusedError:  # it is with the log
            raise
        except LogWriteError:  # it is not in the log
            self.number = None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None and self.number is None:
            self.commit()
