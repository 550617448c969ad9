"""From the pieces of a log to its transactions.

In: the pieces in the order of reading. Out: one `Transaction` per number with a persisting entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tallystick.records import Transaction
from tallystick.systems.cloudtran.format.entries import ENTRY_HEAD_SIZE, target_names
from tallystick.systems.cloudtran.read.block_order import BlockOccurrence
from tallystick.systems.cloudtran.read.transactions import Step, TransactionFold
from tallystick.systems.cloudtran.runs.pieces import Piece

if TYPE_CHECKING:
    from tallystick.systems.cloudtran.runs.chunk import Row


def fold_transactions(pieces: Iterable[Piece], log: str) -> list[Transaction]:
    """Return transactions by ascending number.

    Persisted entries whose persisting entry is gone are left out, as replay ignores them.
    """
    fold = TransactionFold(log)
    for piece in pieces:
        if not isinstance(piece, BlockOccurrence):
            add_rows(fold, piece.file.path, piece.data, piece.rows())
        elif piece.block.readable:
            fold.add_block(piece)
    return [fold.known[number] for number in sorted(fold.known)]


def add_rows(fold: TransactionFold, path: str, data: memoryview, rows: Iterable[Row]) -> None:
    """Add entries of a chunk of a file whose bytes are ``data``."""
    for row in rows:
        fold.add(*entry_of_row(path, data, row))


def entry_of_row(path: str, data: memoryview, row: Row) -> tuple[int, Step, str, int]:
    """Return an entry of a chunk as `TransactionFold.add` takes it."""
    kind, flags, number, time, offset, length, place, body, targets_end, operations = row
    targets = target_names(bytes(data[body:targets_end]))
    reference = str(data[place + ENTRY_HEAD_SIZE : body], "utf-8")
    return number, Step(path, offset, length, kind, flags, time, targets), reference, operations
