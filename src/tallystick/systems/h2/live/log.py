"""PageLog: the live log of an H2 page store file.

In: undo images, row changes, commits of any number of threads. Out: pages of the file, written and
synced in groups; after a crash, the three stages of recovery. What differs from the engine, all
within its format:

* A commit, a prepare and a checkpoint are durable when their ticket is done (the engine's COMMIT
  is neither flushed nor synced, so a committed transaction can come back in doubt).
* Every group begins a data page: no page with acknowledged records is written again.
* The header is written with syncs before, between and after its two copies.
* Log keys only grow; freed pages are zeroed once no header refers to them.

Source: docs/formats/h2.md; docs/documents.md lists the members of the original.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tallystick.arguments import bytes_of, integer, text
from tallystick.errors import (
    CorruptLogError,
    IncompleteLogError,
    LogClosedError,
    LogWriteError,
    RecordTooLargeError,
)
from tallystick.roles import InDoubt, RecoveryHandler, Ticket
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.scheduling import threading
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
from tallystick.systems.h2.format.entries import Entry, Type, decode_keyed_row
from tallystick.systems.h2.format.layout import VariableHeader
from tallystick.systems.h2.format.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.types import (
    EngineFailureError,
    FileCorruptedError,
    Value,
    decode_row,
)
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.opening import (
    require_numbers,
    require_pages,
    require_sound,
    require_trunk_page,
)
from tallystick.systems.h2.live.replay import PagesOnly, redo, undo
from tallystick.systems.h2.live.state import LiveState, Prepared
from tallystick.systems.h2.live.writer import Item, LogWriter, replace_record
from tallystick.systems.h2.read.scan import whole_entries
from tallystick.systems.h2.read.stream import LogStream, TrunkChain, open_stream, walk_trunks
from tallystick.systems.h2.runs.pieces import LogPieces

Row = TypeVar("Row")

CARRIED_AT_ONCE = 256
"""Records that are copied to a new log in one group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedInDoubt(InDoubt):
    """A prepared transaction, and the data page that holds its prepare record; 0 until written."""

    page: int


def int_of(value: object, name: str) -> int:
    """Return a number that the format holds as an int. Raises `TypeError` or `ValueError`."""
    return integer(value, name, INT_MIN, INT_MAX)


class PageLog(Uncopied):
    """The transaction log of one page store file; thread-safe once it is open for writing.

    Args:
        store: the file, which the caller closes.
        batch: data pages listed per trunk; None is the engine's number: a full trunk.
        own_pages: undo images are of pages of this file, which the log must then not use.
    """

    def __init__(
        self, store: PageStoreFile, *, batch: int | None = None, own_pages: bool = True
    ) -> None:
        self.store = store
        self._own_pages = own_pages
        capacity = layout.trunk_capacity(store.page_size)
        self._batch = min(batch or capacity, capacity)
        self._mutex = threading.RLock()
        self._freeing = threading.Lock()
        """Held by whoever frees sections: how many trunks go depends on those that are there."""
        self._state = LiveState()
        self._writer: LogWriter | None = None
        self._stream: LogStream | None = None
        self._recovery: Recovery | None = None
        self._min_page_id = 0
        self._freed: list[int] = []
        """Pages of the old log that the free list marked when this one was opened."""

    # -- properties -----------------------------------------------------------------------

    @property
    def log_section_id(self) -> int:
        """Id of the section being written; starts at 0 with every opening."""
        return self._state.section

    @property
    def log_first_section_id(self) -> int:
        """Id of the oldest section kept."""
        return self._state.first_section

    @property
    def log_pos(self) -> int:
        """Row and truncate records in the current section."""
        return self._state.position

    @property
    def size(self) -> int:
        """Bytes of the log's trunk pages and data pages that were written."""
        return 0 if self._writer is None else self._writer.written * self.store.page_size

    @property
    def min_page_id(self) -> int:
        """The first trunk page, if the log was opened at the end of the file; else 0."""
        return self._min_page_id

    @property
    def counters(self) -> GroupCounters:
        """Groups, items with a waiting caller, and their bytes so far.

        A group takes one sync, or two where its pages are more than a sector. Raises
        `LogClosedError`.
        """
        return self._open_writer().counters

    @property
    def is_settled(self) -> bool:
        """True if no session has logged anything that it has not ended."""
        with self._mutex:
            return not self._state.uncommitted and not self._state.prepared

    @property
    def undone_pages(self) -> Collection[int]:
        """Pages with an image in the log, a live view: no log page is ever one of these."""
        return self._state.undo_all

    # -- recovery -------------------------------------------------------------------------

    def open_for_reading(
        self,
        new_log_key: int | None = None,
        new_first_trunk_page: int | None = None,
        new_first_data_page: int | None = None,
    ) -> LogStream:
        """Read a log as recovery will read it.

        Args:
            new_log_key: key of its first trunk page.
            new_first_trunk_page: number of that page.
            new_first_data_page: number of the data page at which the log begins.
                A number that is not given is that of the file's header.

        Raises:
            CorruptLogError: the numbers lead to no log, or the log lists pages that cannot be its.
        """
        head = self.store.header
        given = (new_log_key, new_first_trunk_page, new_first_data_page)
        known = (head.log_key, head.first_trunk, head.first_data)
        numbers = [one if asked is None else asked for asked, one in zip(given, known, strict=True)]
        stream = open_stream(self.store.view(), VariableHeader(head.write_counter, *numbers))
        require_sound(stream)
        self._stream = stream
        return stream

    @staticmethod
    def read_row(
        row_factory: Callable[[int, tuple[Value | None, ...]], Row],
        reader: bytes | memoryview,
        at: int = 0,
        zone: Zone | None = None,
    ) -> tuple[Row, int]:
        """Read the row of an ADD record: its key, its length, its columns.

        Args:
            row_factory: makes a row of the key and the values.
            reader: bytes that hold the row.
            at: offset of the row in ``reader``.
            zone: time zone of the process that wrote it; None is UTC.

        Returns:
            What ``row_factory`` made, and the offset after the row.

        Raises:
            CorruptLogError: the row is cut, or its values are not as long as it says.
        """
        try:
            key, row, end = decode_keyed_row(reader, at)
            values, used = decode_row(row, zone or Zone())
        except (IndexError, FileCorruptedError, EngineFailureError) as error:
            raise CorruptLogError("no whole row", offset=at, found=str(error)) from error
        if used != len(row):
            raise CorruptLogError(
                "the values of a row are not as long as the row",
                offset=at,
                expected=f"{len(row)} bytes",
                found=str(used),
            )
        return row_factory(key, values), end

    def recover(self, stage: int, handler: RecoveryHandler | None = None) -> bool:
        """Run one stage of recovery; it may be interrupted and repeated.

        Args:
            stage: `UNDO_STAGE`, `ALLOCATE_STAGE` or `REDO_STAGE`, in this order.
            handler: receives images and rows. None: images go to the pages of this file, rows
                nowhere.

        Returns:
            Whether the log was empty; True for `ALLOCATE_STAGE`.

        Raises:
            CorruptLogError: an image or a record is damaged in a way that can be detected.
        """
        stream = self._stream or self.open_for_reading()
        if stage == ALLOCATE_STAGE:
            self._mark_used(used_pages(stream))
            return True
        if stage == UNDO_STAGE or self._recovery is None:
            self._recovery = recover(LogPieces(stream, Zone()))
            self._require_readable(self._recovery)
            if self._writer is None:  # else what is in doubt is known
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
        fault = recovery.end.error or recovery.end.quiet_fault
        if pages or fault:
            raise CorruptLogError(
                "the log is damaged",
                file=self.store.path,
                expected="records and images that are whole",
                found=fault or f"damaged images of pages {pages}",
                advice="Restore a backup; 'tallystick verify' tells what is lost",
            )
        if self._own_pages:
            require_pages(self.store.path, self.store.page_count, recovery)

    def _find_in_doubt(self, recovery: Recovery) -> None:
        self._state.prepared = {
            state.session: Prepared(state.in_doubt or "", state.prepare_page)
            for state in recovery.in_doubt()
        }

    def _mark_used(self, pages: set[int]) -> None:
        for page in pages:
            if page < self.store.page_count:
                self.store.mark_used(page)

    def recover_end(self) -> None:
        """Forget the sessions that recovery found; those in doubt stay."""
        self._recovery = None

    # -- transactions in doubt ------------------------------------------------------------

    def get_in_doubt_transactions(self) -> Sequence[PagedInDoubt]:
        """Return prepared transactions that are not decided, by session."""
        with self._mutex:
            found = sorted(self._state.prepared.items())
        return [PagedInDoubt(session, one.name, page=one.page) for session, one in found]

    def set_in_doubt_transaction_state(self, session: int, page: int, *, commit: bool) -> None:
        """Write COMMIT or ROLLBACK over the prepare record of the session, durably.

        In a log that was only read it takes effect with the next recovery.

        Args:
            session: a session in doubt.
            page: the data page that holds its prepare record, as `get_in_doubt_transactions` says.
            commit: True commits, False rolls back.

        Raises:
            KeyError: the session is not in doubt.
            LogWriteError: the page does not hold its prepare record. Nothing is written.
        """
        record = records.encode_commit(session) if commit else records.encode_rollback(session)
        with self._mutex:
            known = self._state.prepared[session].page
        if not known or page != known:
            raise LogWriteError(
                f"page {page} holds no prepare record of session {session}",
                file=self.store.path,
                expected=f"page {known}" if known else "a prepare whose ticket is done",
                found=f"page {page}",
            )
        if self._writer is not None:
            self._writer.replace(page, record).wait()
        else:
            replace_record(self.store, page, record)
            self.store.sync()
        with self._mutex:
            if commit:
                self._state.end_session(session)
            else:
                self._state.roll_back_prepared(session)

    # -- opening for writing --------------------------------------------------------------

    def open_for_writing(
        self,
        new_first_trunk_page: int | None = None,
        at_end: bool = False,
        *,
        carry: bool = False,
    ) -> None:
        """Begin a new log; the pages of the old one are freed once the headers name the new one.

        Where the free list marks pages of the old log as used, FREE_LOG is the last record of what
        is carried: recovery would else restore these marks, and nothing would free the pages.

        Args:
            new_first_trunk_page: the page at which the log begins; None allocates one.
            at_end: place the log after all other pages of the file, or after the given one.
            carry: copy the records of the old log to the new one. Otherwise the old one must have
                been recovered and every change written.

        Raises:
            IncompleteLogError: transactions are in doubt, and ``carry`` is not given.
            CorruptLogError: the header, the log's lists or, if carried, its records are damaged.
            LogWriteError: the trunk page cannot be one. Nothing is written.
        """
        if not carry:
            self._require_decided()
        old = self._stream or self.open_for_reading()
        recovery = recover(LogPieces(old, Zone())) if carry else Recovery()
        self._require_readable(recovery)
        images = self._restored_lists(old, recovery)
        # A log that was cut short lists pages after the end of the file: the new log may take them.
        used = {page for page in used_pages(old) if page < self.store.page_count}
        if new_first_trunk_page is not None:
            taken = used.union(recovery.undo if self._own_pages else ())
            require_trunk_page(self.store, new_first_trunk_page, taken, images)
        freed = self._listed(old, used, images)
        named, hidden = self._renew_state(recovery, used)
        self._writer = self._begin((old.chain, named), new_first_trunk_page, at_end=at_end)
        self._state.starts[0] = self._writer.output.page
        if carry:
            self._carry_over(old, self._writer, used.union(freed))
        if freed:
            self._writer.write([records.encode_free_log(freed)])
        self._freed = freed
        self._writer.start()
        self.store.release(used)
        self.store.release(hidden, zero=())
        self._stream = None

    def _renew_state(self, recovery: Recovery, used: set[int]) -> tuple[TrunkChain, set[int]]:
        """Begin the state of a new log; return the chain that the header names, and its own pages.

        Undo would overwrite the recovery's pages, even if the free list on disk says they are free.
        """
        self._state = LiveState()
        self._state.undo_all.update(recovery.undo)
        self._mark_used(used)
        head = self.store.header
        named = walk_trunks(self.store.view(), head.first_trunk, head.log_key)
        hidden = self._only_in(named)
        self._mark_used(hidden)
        return named, hidden

    def _require_decided(self) -> None:
        if self._state.prepared:
            names = [one.name for one in self._state.prepared.values()]
            raise IncompleteLogError(
                f"transactions are in doubt: {names}",
                file=self.store.path,
                advice="Decide them, then recover again",
            )

    def _restored_lists(self, old: LogStream, recovery: Recovery) -> dict[int, bytes]:
        """Return the pages of the free list that a carried log will restore, by number."""
        lists = self.store.free_list_pages
        if not self._own_pages or recovery.undo.keys().isdisjoint(lists):
            return {}
        return {
            entry.page: entry.image
            for entry in whole_entries(old)
            if entry.code == Type.UNDO and entry.page in lists and recovery.undo_applied(entry)
        }

    def _only_in(self, named: TrunkChain) -> set[int]:
        """Return the pages of the header's log that are not in use, where another log was read.

        Pages that cannot be a log's are left out: these lists may be damaged.
        """
        pages = {page for trunk in named.trunks for page in trunk.pages}
        possible = range(layout.FIRST_FREE_PAGE, self.store.page_count)
        return {page for page in pages if page in possible and not self.store.is_used(page)}

    def _listed(self, old: LogStream, used: set[int], images: Mapping[int, bytes]) -> list[int]:
        """Return the pages of the old log that the free list marks, as recovery restores it."""
        if not self._own_pages:
            return []
        spare = {old.chain.trunks[-1].next} if old.chain.trunks else set()
        return self.store.listed(used | {page for page in spare if self._is_spare(page)}, images)

    def _is_spare(self, page: int) -> bool:
        """Return True for the page that the log had allocated for its next trunk."""
        if not layout.META_ROOT < page < self.store.page_count:
            return False
        (kind,) = self.store.file.pread(1, page * self.store.page_size)
        return kind in (layout.EMPTY, layout.STREAM_TRUNK, layout.STREAM_DATA)

    def _begin(
        self, chains: Collection[TrunkChain], first_trunk: int | None, *, at_end: bool
    ) -> LogWriter:
        keys = [trunk.key for chain in chains for trunk in chain.trunks]
        key = max([self.store.header.log_key, *keys])
        require_numbers(self.store.path, self.store.header, key)
        exclude = self._state.undo_all if self._own_pages else ()
        if first_trunk is not None:
            self.store.mark_used(first_trunk)
        else:
            # Not where an old log would go on: until the headers name the new one, its first trunk
            # would be looked at as the next one of the old, which has the same key.
            following = {chain.end_page for chain in chains}
            above = self.store.page_count - 1 if at_end else 0
            first_trunk = self.store.allocate(above, following.union(exclude))
        writer = LogWriter(
            self.store,
            key=key,
            batch=self._batch,
            exclude=exclude,
            at_end=at_end,
            first_trunk=first_trunk,
        )
        self._min_page_id = writer.first_trunk if at_end else 0
        return writer

    def _carry_over(self, old: LogStream, writer: LogWriter, of_log: Collection[int]) -> None:
        """Copy the records of an old log; ``of_log``: pages that no carried FREE_LOG may name."""
        group: list[Item | bytes] = []
        # Pages that the old log had freed matter where the file's own free list is redone.
        skipped = (Type.NOOP,) if self._own_pages else (Type.NOOP, Type.FREE_LOG)
        for entry in whole_entries(old):
            if entry.code not in skipped:
                self._state.add_entry(entry)
                if entry.code == Type.FREE_LOG:
                    group.append(_without(entry, of_log))
                else:
                    group.append(self._carried(entry, old.raw(entry.start, entry.length)))
            if len(group) >= CARRIED_AT_ONCE:
                writer.write(group)
                group = []
        writer.write(group)

    def _carried(self, entry: Entry, record: bytes) -> Item | bytes:
        """Return a record of an old log with the rules of where it is written."""
        if entry.code == Type.PREPARE_COMMIT:
            return self._prepare_item(entry.session, record)
        if entry.code == Type.CHECKPOINT:
            return self._checkpoint_item(self._state.section)
        return record

    # -- logging --------------------------------------------------------------------------

    def add_undo(self, page: int, image: bytes | None) -> None:
        """Log the image of a page before its first change in this section.

        A page that has one in this section is ignored. The image is durable with the next `flush`.

        Args:
            page: number of the page.
            image: exactly one page; None: the page was empty.

        Raises:
            RecordTooLargeError: the image is not exactly one page.
        """
        page = int_of(page, "page")
        image = None if image is None else bytes_of(image, "image")
        if image is not None and len(image) != self.store.page_size:
            raise RecordTooLargeError(
                "an undo image is exactly one page",
                file=self.store.path,
                expected=f"{self.store.page_size} bytes",
                found=str(len(image)),
            )
        with self._mutex:
            if page not in self._state.undo:
                self._state.add_image(page)
                self._open_writer().put(records.encode_undo(page, image))

    def get_undo(self, page: int) -> bool:
        """Return True if this section has an image of the page."""
        with self._mutex:
            return page in self._state.undo

    def log_add_or_remove_row(self, session: int, table: int, key: int, row: bytes | None) -> None:
        """Log an added row (column count and values), or with None a removed one."""
        session, table = int_of(session, "session"), int_of(table, "table")
        key = integer(key, "key", LONG_MIN, LONG_MAX)
        if row is None:
            self._log_row(session, records.encode_remove(session, table, key))
        else:
            row = bytes_of(row, "row")
            self._log_row(session, records.encode_add(session, table, key, row))

    def log_truncate(self, session: int, table: int) -> None:
        """Log that all rows of a table are removed."""
        session, table = int_of(session, "session"), int_of(table, "table")
        self._log_row(session, records.encode_truncate(session, table))

    def _log_row(self, session: int, record: bytes) -> None:
        with self._mutex:
            self._state.add_row(session)
            self._open_writer().put(record)

    def prepare_commit(self, session: int, name: str) -> Ticket:
        """Record durably, on a page of its own, that the session can commit under this name.

        Raises:
            RecordTooLargeError: the name does not fit into a page; nothing was logged.
        """
        session, name = int_of(session, "session"), text(name, "name")
        record = records.encode_prepare(session, name)
        limit = self.store.page_size - layout.DATA_START
        if len(record) >= limit:
            raise RecordTooLargeError(
                "transaction name (too long)",
                file=self.store.path,
                expected=f"a record shorter than {limit} bytes",
                found=f"{len(record)} bytes",
            )
        with self._mutex:
            self._state.prepare(session, name)
            return self._open_writer().submit(self._prepare_item(session, record))

    def _prepare_item(self, session: int, record: bytes) -> Item:
        prepared = self._state.prepared[session]

        def placed(page: int) -> None:
            prepared.page = page

        return Item(record, alone=True, placed=placed)

    def commit(self, session: int) -> Ticket:
        """Commit what the session has logged since its last commit."""
        session = int_of(session, "session")
        with self._mutex:
            self._state.end_session(session)
            return self._open_writer().submit(records.encode_commit(session))

    def forget(self, session: int) -> None:
        """Forget a session that was rolled back and is not prepared.

        It will never commit what it has logged, and must not be used again in this log.
        """
        with self._mutex:
            self._state.end_session(session)

    def checkpoint(self) -> Ticket:
        """End the section and begin the next one.

        Call it when the log has been flushed and every changed page is written and durable.
        """
        with self._mutex:
            return self._open_writer().submit(self._checkpoint_item(self._state.next_section()))

    def _checkpoint_item(self, section: int) -> Item:
        starts = self._state.starts

        def placed(page: int) -> None:
            starts[section] = page

        return Item(records.encode_checkpoint(), last=True, placed=placed)

    def flush(self) -> Ticket:
        """Make everything logged so far durable, undo images included."""
        return self._open_writer().submit(b"")

    def _open_writer(self) -> LogWriter:
        if self._writer is None:
            raise LogClosedError("the log is not open for writing", file=self.store.path)
        return self._writer

    # -- freeing --------------------------------------------------------------------------

    def remove_until(self, section: int) -> None:
        """Free what lies before that section, as far as whole trunks go; 0 frees nothing.

        Sections with uncommitted changes stay. What FREE_LOG frees is logged again, as far as the
        free list still marks it.
        """
        writer = self._open_writer()
        with self._freeing:
            with self._mutex:
                section = min(section, self._state.needed_section())
                if section <= self._state.first_section:
                    return
            # The section's first page is known when this is written.
            writer.submit(self._free_again(writer)).wait()
            writer.remove_before(self._state.starts[section])
            with self._mutex:
                self._state.drop_before(section)

    def _free_again(self, writer: LogWriter) -> bytes:
        """Return FREE_LOG for pages whose marks no table has made its own; empty if there is none.

        Pages that this log uses are among them: recovery keeps those, and frees them when they are
        no longer in the log.
        """
        if not self._freed:
            return b""
        own = set(writer.output.page_ids)
        free = [page for page in self._freed if page in own or not self.store.is_used(page)]
        self._freed = self.store.listed(free, {})
        return records.encode_free_log(self._freed) if self._freed else b""

    def free(self) -> None:
        """Free the whole log and write the free list. Every changed page must be written."""
        self.end()
        self.store.write_free_list()

    def end(self) -> None:
        """Free the whole log. Every changed page must be written and durable."""
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


def _without(entry: Entry, of_log: Collection[int]) -> bytes:
    """Return a carried FREE_LOG without pages of the old log; empty if there are no others.

    Recovery of the old log would not free those. In the new one they are freed at its end only: a
    page that was freed before could be a table's by then.
    """
    pages = [page for page in entry.pages if page not in of_log]
    return records.encode_free_log(pages) if pages else b""
