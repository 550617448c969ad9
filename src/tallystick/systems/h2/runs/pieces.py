"""A log in pieces: chunks of records where it is long enough for these to pay, else its entries.

In: the stream of a log, or of a part of one. Out: its records in order, and how they end. All
pieces of a log are of one kind: what is odd in a long one is in chunks of its own (`Chunk.odd`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from tallystick.systems import runs
from tallystick.systems.h2.format.entries import TABLE_CATALOG, TABLE_META, Entry, Type
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read.scan import Scan, ScanEnd
from tallystick.systems.h2.read.stream import LogStream

if TYPE_CHECKING:
    from tallystick.systems.h2.runs.chunk import Chunk

Piece: TypeAlias = "Entry | Chunk"

OWN_TABLES = frozenset((TABLE_META, TABLE_CATALOG))
ROWS = 1 << 13


class LogPieces:
    """The records of a log; each call reads them anew.

    Attributes:
        in_runs: whether they come in chunks, not as entries.
        end: how the log ends; known once a call has come to its end.
    """

    def __init__(self, stream: LogStream, zone: Zone) -> None:
        self.stream, self.zone = stream, zone
        self.end = ScanEnd()
        self.in_runs = runs.pay_here(stream.size)

    def pieces(self) -> Iterator[Piece]:
        """Yield all records in order: as chunks, or as entries; no-ops in a row are one record."""
        if self.in_runs:
            yield from self.chunks()
            return
        scan = Scan(self.stream, self.zone)
        yield from scan.entries()
        self.end = scan.end

    def chunks(self, rows: int = ROWS) -> Iterator[Chunk]:
        """Yield all records in order, in chunks of at most ``rows``."""
        from tallystick.systems.h2.runs.chunk import Chunks

        found = Chunks(self.stream, self.zone)
        yield from found.read(rows)
        self.end = found.end

    def entries(self, valued: Container[int] = OWN_TABLES) -> Iterator[Entry]:
        """Yield all records in order as entries.

        Of a log in runs the entries of plain records may lack what costs time: an added row has its
        bytes, and values in the tables of ``valued`` only; an undo image has neither.
        """
        for piece in self.pieces():
            if isinstance(piece, Entry):
                yield piece
            else:
                yield from self.of_chunk(piece, None, valued)

    def added_to(self, table: int) -> Iterator[Entry]:
        """Yield the records that add rows to a table."""
        for piece in self.pieces():
            if not isinstance(piece, Entry):
                yield from self.of_chunk(piece, piece.added_to(table))
            elif (piece.type, piece.table) == (Type.ADD.name, table):
                yield piece

    def prepared(self) -> Iterator[Entry]:
        """Yield the prepare records."""
        for piece in self.pieces():
            if not isinstance(piece, Entry):
                yield from self.of_chunk(piece, piece.of_type(Type.PREPARE_COMMIT))
            elif piece.type == Type.PREPARE_COMMIT.name:
                yield piece

    def of_chunk(
        self, chunk: Chunk, chosen: Any | None, valued: Container[int] = ()
    ) -> Iterator[Entry]:
        """Yield records of a chunk, all or the chosen ones, as `entries` does."""
        from tallystick.systems.h2.runs.chunk import entries_of

        return entries_of(chunk, self.stream, self.zone, valued, chosen)
