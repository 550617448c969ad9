"""Recovery played onto a store: undo images put back, committed rows handed on.

In: a log stream, what stage 0 found, a `RecoveryHandler`. Out: calls of the handler.
Each stage may be interrupted and repeated. Source: the PageLog description, section b.6.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.roles import RecoveryHandler
from tallystick.systems.h2.engine.recovery import Recovery
from tallystick.systems.h2.format.entries import UNDO_EMPTY, Entry, Type
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.live.page_file import PageStoreFile
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.read.stream import LogStream

_KNOWN = frozenset(one.name for one in Type)


class PagesOnly:
    """Puts images back into the pages of the file itself; rows are somebody else's."""

    def __init__(self, store: PageStoreFile) -> None:
        self._store = store

    def undo_page(self, page: int, image: bytes | None) -> None:
        """Write the page with a fresh checksum."""
        self._store.write_page(page, image or bytes(self._store.page_size))

    def redo_add(self, table: int, key: int, row: bytes) -> None:
        """Not a matter of pages."""

    def redo_remove(self, table: int, key: int) -> None:
        """Not a matter of pages."""

    def redo_truncate(self, table: int) -> None:
        """Not a matter of pages."""


def undo(stream: LogStream, recovery: Recovery, handler: RecoveryHandler) -> None:
    """Stage 0: the first image of each page."""
    for entry in whole_entries(stream):
        if entry.code == Type.UNDO and recovery.undo_applied(entry):
            handler.undo_page(entry.page, None if entry.size == UNDO_EMPTY else entry.image)


def redo(stream: LogStream, recovery: Recovery, handler: RecoveryHandler) -> None:
    """Stage 2: changes of sessions that committed behind them, in log order."""
    for entry in whole_entries(stream):
        if entry.session_bound and recovery.redo(entry):
            _redo(handler, entry)


def _redo(handler: RecoveryHandler, entry: Entry) -> None:
    if entry.code == Type.ADD:
        handler.redo_add(entry.table, entry.key, entry.row)
    elif entry.code == Type.REMOVE:
        handler.redo_remove(entry.table, entry.key)
    else:
        handler.redo_truncate(entry.table)


def whole_entries(stream: LogStream) -> Iterator[Entry]:
    """Records that are whole and known, in order."""
    return (entry for entry in Scan(stream, Zone()).entries() if entry.type in _KNOWN)


def raw_bytes(stream: LogStream, entry: Entry) -> bytes:
    """The record as it stands in the stream."""
    first, at = divmod(entry.start, stream.body_size)
    last = (entry.start + entry.length - 1) // stream.body_size
    return stream.bodies(first, last - first + 1)[at : at + entry.length]
