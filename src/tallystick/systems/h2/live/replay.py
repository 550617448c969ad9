"""Stages of recovery applied to a store: undo images put back, committed rows passed on.

In: a log stream, what stage 0 found, a `RecoveryHandler`. Out: calls of the handler.
Each stage may be interrupted and repeated. Source: docs/formats/h2.md, "What recovery does".
"""

from __future__ import annotations

from tallystick.roles import RecoveryHandler
from tallystick.systems.h2.engine.recovery import Recovery
from tallystick.systems.h2.format.entries import UNDO_EMPTY, Entry, Type
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.read.scan import whole_entries
from tallystick.systems.h2.read.stream import LogStream


class PagesOnly:
    """Handler that writes images to the pages of the file itself and ignores rows."""

    def __init__(self, store: PageStoreFile) -> None:
        self._store = store

    def undo_page(self, page: int, image: bytes | None) -> None:
        """Write the page with a fresh checksum."""
        self._store.write_page(page, image or bytes(self._store.page_size))

    def redo_add(self, table: int, key: int, row: bytes) -> None:
        """Ignore the row."""

    def redo_remove(self, table: int, key: int) -> None:
        """Ignore the row."""

    def redo_truncate(self, table: int) -> None:
        """Ignore the table."""


def undo(stream: LogStream, recovery: Recovery, handler: RecoveryHandler) -> None:
    """Run stage 0: the first image of each page."""
    for entry in whole_entries(stream):
        if entry.code == Type.UNDO and recovery.undo_applied(entry):
            handler.undo_page(entry.page, None if entry.size == UNDO_EMPTY else entry.image)


def redo(stream: LogStream, recovery: Recovery, handler: RecoveryHandler) -> None:
    """Run stage 2: changes that a later commit of their session covers, in log order."""
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
