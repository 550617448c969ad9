"""A page log that is looked at and recovered: what stands before anything is written to it.

In: a page store file. Out: the three stages of recovery, and the transactions in doubt with what
an operator decides about them. `tallystick.systems.h2.live.log.PageLog` adds the writing.
Source: the PageLog description, part b.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tallystick.errors import CorruptLogError
from tallystick.roles import InDoubt, RecoveryHandler
from tallystick.systems.h2.engine.recovery import (
    ALLOCATE_STAGE,
    REDO_STAGE,
    UNDO_STAGE,
    Recovery,
    recover,
    used_pages,
)
from tallystick.systems.h2.format import entries as records
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.live.page_file import PageStoreFile
from tallystick.systems.h2.live.replay import PagesOnly, redo, undo
from tallystick.systems.h2.live.session_state import Ledger, Prepared
from tallystick.systems.h2.live.writer import LogWriter, replace_record
from tallystick.systems.h2.read.stream import LogStream, open_stream


class RecoverableLog:
    """The log of one page store file. For ``batch`` and ``own_pages`` see `PageLog`."""

    def __init__(
        self, store: PageStoreFile, *, batch: int | None = None, own_pages: bool = True
    ) -> None:
        self.store = store
        self._own_pages = own_pages
        capacity = layout.trunk_capacity(store.page_size)
        self._batch = min(batch or capacity, capacity)
        self._mutex = threading.RLock()
        self._ledger = Ledger()
        self._writer: LogWriter | None = None
        self._stream: LogStream | None = None
        self._recovery: Recovery | None = None
        self._minimum_page = 0

    # -- what it is -----------------------------------------------------------------------

    @property
    def section_id(self) -> int:
        """Id of the section being written; starts at 0 with every opening."""
        return self._ledger.section

    @property
    def first_section_id(self) -> int:
        """Id of the oldest section kept."""
        return self._ledger.first_section

    @property
    def position(self) -> int:
        """Row and truncate records in the current section."""
        return self._ledger.position

    @property
    def size(self) -> int:
        """Bytes of the log's trunk pages and data pages that were written."""
        return 0 if self._writer is None else self._writer.written * self.store.page_size

    @property
    def minimum_page(self) -> int:
        """Smallest page number of a log that was opened at the end of the file, else 0."""
        return self._minimum_page

    # -- reading and recovery -------------------------------------------------------------

    def open_for_reading(self) -> LogStream:
        """Look at the log that the file's header names, as recovery will read it."""
        self._stream = open_stream(self.store.view(), self.store.header)
        return self._stream

    def recover(self, stage: int, handler: RecoveryHandler | None = None) -> bool:
        """One stage of recovery: 0 undo, 1 allocate, 2 redo, in this order. Returns whether the
        log was empty (stage 1: always). Without a handler undo images go to the pages of this
        file and rows nowhere. May be interrupted and repeated. Raises `CorruptLogError` for an
        image or a record that is damaged in a way that shows."""
        stream = self._stream or self.open_for_reading()
        if stage == ALLOCATE_STAGE:
            self._mark_used(stream)
            return True
        if stage == UNDO_STAGE or self._recovery is None:
            self._recovery = recover(stream, Zone())
            self._require_readable(self._recovery)
            self._find_in_doubt(self._recovery)
        if stage == UNDO_STAGE:
            undo(stream, self._recovery, handler or PagesOnly(self.store))
            if handler is None:
                self.store.sync()
        elif stage == REDO_STAGE and handler is not None:
            redo(stream, self._recovery, handler)
        return self._recovery.empty

    def _require_readable(self, recovery: Recovery) -> None:
        pages = sorted(recovery.damaged_images)
        if pages or recovery.end.error:
            raise CorruptLogError(
                "the log is damaged",
                file=self.store.path,
                expected="records and images that are whole",
                found=recovery.end.error or f"damaged images of pages {pages}",
                advice="Restore a backup; 'tallystick verify' tells what is lost",
            )

    def _find_in_doubt(self, recovery: Recovery) -> None:
        self._ledger.prepared = {
            state.session: Prepared(state.in_doubt or "", state.prepare_page)
            for state in recovery.in_doubt()
        }

    def recover_end(self) -> None:
        """Forget what recovery knows of sessions; those in doubt stay."""
        self._recovery = None

    def get_in_doubt_transactions(self) -> Sequence[InDoubt]:
        """Prepared transactions that nobody has decided, by session."""
        with self._mutex:
            found = sorted(self._ledger.prepared.items())
        return [InDoubt(session, one.name) for session, one in found]

    def set_in_doubt_transaction_state(self, session: int, *, commit: bool) -> None:
        """Write COMMIT or ROLLBACK over the record that prepared the session's transaction,
        durably. Raises `KeyError` if it is not in doubt. In a log that was only read it takes
        effect with the next recovery."""
        record = records.encode_commit(session) if commit else records.encode_rollback(session)
        with self._mutex:
            page = self._ledger.prepared[session].page
        if self._writer is not None:
            self._writer.replace(page, record).wait()
        else:
            replace_record(self.store, page, record)
            self.store.sync()
        with self._mutex:
            self._ledger.ended(session)

    def _mark_used(self, old: LogStream) -> None:
        for page in used_pages(old):
            if page < self.store.page_count:
                self.store.mark_used(page)
