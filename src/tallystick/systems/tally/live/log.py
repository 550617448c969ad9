"""The live native log: open, append, sync, checkpoint, recycle, close.

In: items from any number of threads and tasks. Out: tickets, done when the item is durable, with
its LSN. Every role of the house stands on this one class (`tallystick.systems.tally.live.roles`).
"""

from __future__ import annotations

import contextlib
import posixpath
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from tallystick.errors import RecordTooLargeError
from tallystick.records import Finding
from tallystick.storage.files import FileSystem
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.ticket import GroupTicket
from tallystick.storage.group.writer import GroupWriter
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.format.layout import LOCK_NAME, segment_name
from tallystick.systems.tally.format.sealing import KeyProvider
from tallystick.systems.tally.live.append_items import RECORD_BYTES, Action, Item, size_of
from tallystick.systems.tally.live.carry_forward import Bundle, carried
from tallystick.systems.tally.live.durable_mark_timer import IdleMark
from tallystick.systems.tally.live.group_encoder import Writing
from tallystick.systems.tally.live.opening import load_key, open_log
from tallystick.systems.tally.live.reclaim import Reclaiming
from tallystick.systems.tally.live.settings import Settings, capacity
from tallystick.systems.tally.read.open_work import Element
from tallystick.systems.tally.read.state import LogState


class TallyLog:
    """An open native log. Safe for threads and tasks; one owner at a time.

    ``key`` provides the secret if the log is or shall be encrypted. Raises `LogLockedError`,
    `CorruptLogError`, `UnsupportedFormatError`, `LogUnreadableError`.
    """

    def __init__(
        self,
        path: str,
        *,
        settings: Settings | None = None,
        key: KeyProvider | None = None,
        fs: FileSystem = LOCAL,
    ) -> None:
        self.path = path
        self.fs = fs
        self.settings = settings or Settings()
        self.key = load_key(key)
        fs.mkdir(path)
        self._lock = fs.lock(posixpath.join(path, LOCK_NAME))
        try:
            recovered = open_log(fs, path, self.settings, self.key)
        except BaseException:
            self._lock.release()
            raise
        self._appender = recovered.appender
        self._state = recovered.state
        self._state_lock = threading.Lock()
        self._reclaiming = Reclaiming(self._appender, self._state, self._state_lock)
        self.findings: tuple[Finding, ...] = recovered.findings
        control = self._appender.control
        self.capacity = capacity(control.segment_size, control.sector_size)
        """The most bytes that one record, or one bundle, can have."""
        self._writing = Writing(self._appender, self._state, self._state_lock, self.capacity, path)
        self.group_bytes = min(self.settings.group_bytes, self.capacity)
        """The most bytes of a group that forms by itself."""
        self._writer: GroupWriter[Item] = GroupWriter(
            self._writing.write,
            self._appender.sync,
            name=path,
            group_bytes=self.group_bytes,
            delay=self.settings.delay_s,
            siblings=self.settings.siblings,
        )
        self._closed = False
        self._idle = IdleMark(self, self.settings.idle_mark_s)

    # -- writing ------------------------------------------------------------------------

    def append(self, body: bytes) -> GroupTicket[Item]:
        """A plain record."""
        size = len(body)
        self.check_size(size)
        return self._writer.submit(body, size + 4)

    def commit(self, body: bytes) -> int:
        """A plain record, durable when this returns its LSN."""
        size = len(body)
        self.check_size(size)
        return self._writer.commit(body, size + 4)

    def check_size(self, size: int) -> None:
        """Raise `RecordTooLargeError` if a plain record of that size does not fit."""
        if size + RECORD_BYTES > self.capacity:
            raise self._too_large(size)

    def expect(self, size: int) -> None:
        """About ``size`` bytes of bodies will come: if they do not fit in the current segment, the
        next one is made meanwhile."""
        self._appender.expect(size)

    def submit(self, item: Item, *, sync: bool = True) -> GroupTicket[Item]:
        """Any item. With ``sync=False`` nobody will wait: it rides in the next group."""
        size = size_of(item)
        if size > self.capacity:
            raise self._too_large(size)
        return self._writer.submit(item, size, sync=sync)

    def _too_large(self, size: int) -> RecordTooLargeError:
        return RecordTooLargeError(
            "the record does not fit in a segment",
            file=self.path,
            expected=f"at most {self.capacity} bytes",
            found=f"{size} bytes",
            advice="Make the log with larger segments",
        )

    def flush(self) -> None:
        """Everything submitted so far is durable when this returns."""
        self._writer.flush()

    def barrier(self) -> GroupTicket[Item]:
        """A promise for everything submitted so far."""
        return self.submit(Action(_nothing))

    def mark(self) -> None:
        """Note in the control block, durably, that everything so far is durable: so that later
        damage to the last group is not taken for a write that never finished."""
        if not self._appender.marked:
            self.submit(Action(self._appender.mark)).wait()

    # -- state --------------------------------------------------------------------------

    @contextlib.contextmanager
    def state(self) -> Iterator[LogState]:
        """The state of everything submitted before, which is durable; hold it shortly."""
        self.flush()
        with self._state_lock:
            yield self._state

    @property
    def next_lsn(self) -> int:
        """LSN of the next record that will be written."""
        return self._appender.next_lsn

    @property
    def durable_lsn(self) -> int:
        """Everything up to here is durable."""
        return self._appender.durable_lsn

    @property
    def first_segment(self) -> int:
        """Number of the oldest segment."""
        return self._appender.control.first_segment

    @property
    def last_segment(self) -> int:
        """Number of the segment that is written to."""
        return self._appender.segment

    @property
    def segment_size(self) -> int:
        """Bytes of a segment."""
        return self._appender.control.segment_size

    @property
    def checkpoint_lsn(self) -> int:
        """Plain records below this LSN were given up."""
        return self._appender.control.checkpoint_lsn

    @property
    def identity(self) -> bytes:
        """The log's random name, 16 bytes."""
        return self._appender.control.identity

    @property
    def counters(self) -> GroupCounters:
        """Groups, records, bytes, syncs."""
        return self._writer.counters

    # -- segments -----------------------------------------------------------------------

    def roll(self) -> None:
        """Seal the current segment and go on in a new one."""
        self.submit(Action(self._appender.roll)).wait()

    def reclaim(self, checkpoint_lsn: int = 0, *, keep_from: int | None = None) -> list[int]:
        """Free the oldest segments that nothing needs; returns their numbers.

        Plain, undo and redo records below ``checkpoint_lsn`` are given up, if it is larger than
        before. ``keep_from`` is a segment that, with all younger ones, has to stay.
        """
        freed: list[int] = []
        agreed = self._reclaiming.agreed()

        def act() -> None:
            freed.extend(self._reclaiming.free(checkpoint_lsn, keep_from, agreed))

        self.submit(Action(act)).wait()
        return freed

    def reclaim_soon(self, carry_after: int = 8, carry_most: int = 16) -> None:
        """The same when the next group is written. If more than ``carry_after`` segments are
        kept, open decisions and entries in the oldest one are written again at the end of the
        log first, unless they are more than ``carry_most``."""
        agreed = self._reclaiming.agreed()

        def act() -> None:
            appender = self._appender
            first = appender.control.first_segment
            if appender.segment - first > carry_after:
                bundles = carried(self._state, first + 1)
                if len(bundles) <= carry_most:
                    self.write_now(bundles)
            self._reclaiming.free(0, agreed)

        self.submit(Action(act), sync=False)

    def ask_before_reclaiming(self, may_go: Callable[[str], bool]) -> None:
        """Give up no segment from now on whose path ``may_go`` does not agree to: a reader
        somewhere else is not through with it. Asked oldest first, by whoever reclaims."""
        self._reclaiming.ask_first(
            lambda number: may_go(posixpath.join(self.path, segment_name(number)))
        )

    def write_now(self, bundles: Sequence[Bundle]) -> None:
        """Write bundles durably; to be called from within an `Action` only."""
        self._writing.write_durably(bundles)

    def elements_of(self, key: int) -> tuple[Element, ...]:
        """The live elements of an id; to be called from within an `Action` only."""
        return self._state.live.get(key, ())

    def hold(self, number: int) -> contextlib.AbstractContextManager[None]:
        """Keep the files of this segment and of all later ones while somebody reads them."""
        return self._appender.hold(number)

    # -- end ----------------------------------------------------------------------------

    def close(self) -> None:
        """Make durable what was submitted, note that it is, and close; a second call does
        nothing."""
        if self._closed:
            return
        self._closed = True
        self._idle.stop()
        try:
            self.flush()
            self.mark()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        try:
            self._writer.close()
        finally:
            self._appender.close()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _nothing() -> None:
    """What a barrier does."""
