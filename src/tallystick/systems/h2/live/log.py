"""PageLog: the live log of an H2 page store file.

In: undo images, row changes, commits of any number of threads. Out: pages of the file, written and
synced in groups; after a crash, the three stages of recovery. What differs from the engine, all
within its format:

* A commit, a prepare and a checkpoint are durable when their ticket is done (the engine's COMMIT
  is neither flushed nor synced, so a committed transaction can come back in doubt).
* Every group begins a data page: no page with acknowledged records is written again.
* The header is written with syncs before, between and after its two copies.
* Log keys grow for ever; freed pages are zeroed after the header has left them.

Source: the PageLog description, part b. The names of its methods are mapped in the docs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tallystick.errors import IncompleteLogError, LogClosedError, RecordTooLargeError
from tallystick.roles import Ticket
from tallystick.storage.group.counters import GroupCounters
from tallystick.systems.h2.engine.recovery import recover, used_pages
from tallystick.systems.h2.format import entries as records
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.format.layout import VariableHeader
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.live.recovering import RecoverableLog
from tallystick.systems.h2.live.replay import raw_bytes, whole_entries
from tallystick.systems.h2.live.session_state import Ledger, Prepared
from tallystick.systems.h2.live.writer import Item, LogWriter
from tallystick.systems.h2.read.stream import LogStream

CARRIED_AT_ONCE = 256
"""Records that go over to a new log in one group."""


class PageLog(RecoverableLog):
    """The transaction log of one page store file. Thread-safe once it is open for writing.

    ``batch`` is the number of data pages listed per trunk; None is the engine's: a full trunk.
    ``own_pages``: undo images are of pages of this file, which the log must then stay off.
    """

    # -- opening for writing --------------------------------------------------------------

    def open_for_writing(
        self, *, at_end: bool = False, carry: bool = False, freed: Sequence[int] = ()
    ) -> None:
        """Begin a new log; the old one is freed when the headers have left it.

        With ``carry`` its records go over to the new log. Without, it must have been recovered
        and every change written; raises `IncompleteLogError` while transactions are in doubt.
        ``at_end``: behind all other pages of the file. ``freed``: pages that the free list on disk
        has in use, though only the old log used them; redo frees them.
        """
        if self._ledger.prepared and not carry:
            names = [one.name for one in self._ledger.prepared.values()]
            raise IncompleteLogError(
                f"transactions are in doubt: {names}",
                file=self.store.path,
                advice="Decide them, then recover again",
            )
        old = self._stream or self.open_for_reading()
        self._mark_used(old)
        self._ledger = Ledger()
        if carry:
            # Undo would overwrite these pages, whatever the free list on disk says of them.
            self._ledger.undo_all.update(recover(old, Zone()).undo)
        self._writer = self._begin(old, at_end=at_end)
        self._ledger.starts[0] = self._writer.output.page
        if carry:
            self._carry_over(old, self._writer)
        if freed:
            self._writer.write([records.encode_free_log(list(freed))])
        self._writer.start()
        self.store.release([page for page in used_pages(old) if page < self.store.page_count])
        self._stream = None

    def _begin(self, old: LogStream, *, at_end: bool) -> LogWriter:
        key = max((trunk.key for trunk in old.chain.trunks), default=self.store.header.log_key)
        writer = LogWriter(
            self.store,
            key=key,
            batch=self._batch,
            exclude=self._ledger.undo_all if self._own_pages else (),
            at_end=at_end,
        )
        self._minimum_page = writer.first_trunk if at_end else 0
        return writer

    def _carry_over(self, old: LogStream, writer: LogWriter) -> None:
        group: list[Item | bytes] = []
        # Pages that the old log had freed matter where the file's own free list is redone.
        passed = (Type.NOOP,) if self._own_pages else (Type.NOOP, Type.FREE_LOG)
        for entry in whole_entries(old):
            if entry.code not in passed:
                self._ledger.note(entry)
                group.append(self._carried(entry, raw_bytes(old, entry)))
            if len(group) >= CARRIED_AT_ONCE:
                writer.write(group)
                group = []
        writer.write(group)

    def _carried(self, entry: Entry, record: bytes) -> Item | bytes:
        if entry.code == Type.PREPARE_COMMIT:
            return self._prepare_item(entry.session, record)
        if entry.code == Type.CHECKPOINT:
            return self._checkpoint_item(self._ledger.section)
        return record

    # -- logging --------------------------------------------------------------------------

    def add_undo(self, page: int, image: bytes | None) -> None:
        """Log the image of a page before its first change in this section; None: it was
        empty. Nothing if the section has one. It is durable with the next `flush`."""
        if image is not None and len(image) != self.store.page_size:
            raise RecordTooLargeError(
                "an undo image is exactly one page",
                file=self.store.path,
                expected=f"{self.store.page_size} bytes",
                found=str(len(image)),
            )
        with self._mutex:
            if page not in self._ledger.undo:
                self._ledger.image(page)
                self._open_writer().put(records.encode_undo(page, image))

    def get_undo(self, page: int) -> bool:
        """True if this section holds an image of the page already."""
        with self._mutex:
            return page in self._ledger.undo

    def log_add_or_remove_row(self, session: int, table: int, key: int, row: bytes | None) -> None:
        """Log an added row (column count and values), or with None a removed one."""
        if row is None:
            self._log_row(session, records.encode_remove(session, table, key))
        else:
            self._log_row(session, records.encode_add(session, table, key, row))

    def log_truncate(self, session: int, table: int) -> None:
        """Log that all rows of a table are removed."""
        self._log_row(session, records.encode_truncate(session, table))

    def _log_row(self, session: int, record: bytes) -> None:
        with self._mutex:
            self._ledger.row(session)
            self._open_writer().put(record)

    def prepare_commit(self, session: int, name: str) -> Ticket:
        """Record durably, on a page of its own, that the session can commit under this name.
        Raises `RecordTooLargeError` for a name that does not fit, with nothing logged."""
        record = records.encode_prepare(session, name)
        room = self.store.page_size - layout.DATA_START
        if len(record) >= room:
            raise RecordTooLargeError(
                "transaction name (too long)",
                file=self.store.path,
                expected=f"a record shorter than {room} bytes",
                found=f"{len(record)} bytes",
            )
        with self._mutex:
            self._ledger.prepared[session] = Prepared(name)
            return self._open_writer().submit(self._prepare_item(session, record))

    def _prepare_item(self, session: int, record: bytes) -> Item:
        prepared = self._ledger.prepared[session]

        def placed(page: int) -> None:
            prepared.page = page

        return Item(record, alone=True, placed=placed)

    def commit(self, session: int) -> Ticket:
        """Commit what the session has logged since its last commit."""
        with self._mutex:
            self._ledger.ended(session)
            return self._open_writer().submit(records.encode_commit(session))

    def forget(self, session: int) -> None:
        """A live session that is not prepared was rolled back: it will never commit what it has
        logged, and must not be used again in this log."""
        with self._mutex:
            self._ledger.ended(session)

    def checkpoint(self) -> Ticket:
        """End the section; to be called when the log has been flushed and every changed page
        is written and durable. The next section begins at once."""
        with self._mutex:
            return self._open_writer().submit(self._checkpoint_item(self._ledger.next_section()))

    def _checkpoint_item(self, section: int) -> Item:
        starts = self._ledger.starts

        def placed(page: int) -> None:
            starts[section] = page

        return Item(records.encode_checkpoint(), last=True, placed=placed)

    @property
    def counters(self) -> GroupCounters:
        """Groups, items that somebody waits for, and their bytes so far; a group takes one sync,
        or two where its pages are more than a sector. Raises `LogClosedError`."""
        return self._open_writer().counters

    def flush(self) -> Ticket:
        """Everything logged so far, undo images included."""
        return self._open_writer().submit(b"")

    def _open_writer(self) -> LogWriter:
        if self._writer is None:
            raise LogClosedError("the log is not open for writing", file=self.store.path)
        return self._writer

    # -- dropping -------------------------------------------------------------------------

    def remove_until(self, section: int) -> None:
        """Free what lies before that section, as far as whole trunks go; 0 frees nothing.
        Sections with uncommitted changes stay."""
        writer = self._open_writer()
        with self._mutex:
            section = min(section, self._ledger.needed_section())
            if section <= self._ledger.first_section:
                return
        writer.submit(b"").wait()  # the section's first page is known when it is written
        writer.remove_before(self._ledger.starts[section])
        with self._mutex:
            self._ledger.drop_before(section)

    def free(self) -> None:
        """Give up the whole log and write the free list. Every changed page must be written."""
        self.end()
        self.store.write_free_list()

    @property
    def is_settled(self) -> bool:
        """True if no session has logged anything that it has not ended."""
        with self._mutex:
            return not self._ledger.uncommitted and not self._ledger.prepared

    @property
    def undone_pages(self) -> Collection[int]:
        """Pages with an image in the log, a live view: no log page is ever one of these."""
        return self._ledger.undo_all

    def end(self) -> None:
        """Give up the whole log. Every changed page must be written and durable."""
        writer = self._open_writer()
        writer.close()
        self._writer = None
        output = writer.output
        self.store.write_header(VariableHeader(0, output.key + 1, 0, 0))
        self.store.release(output.page_ids)

    def close(self) -> None:
        """Flush and stop writing; the log stays in the file, and the store open."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
