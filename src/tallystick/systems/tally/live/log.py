"""The live native log: open, append, sync, checkpoint, recycle, close.

In: items from any number of threads and tasks. Out: tickets, done when the item is durable, with
its LSN. Every role of `tallystick.systems.tally.live.roles` uses this one class.
"""

from __future__ import annotations

import contextlib
import posixpath
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from tallystick.arguments import integer, secret_of
from tallystick.errors import LogWriteError, RecordTooLargeError, TallystickError
from tallystick.records import Finding
from tallystick.storage.files import FileSystem, absolute
from tallystick.storage.fork import Uncopied, register_in_child
from tallystick.storage.group.answers import Answer
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.ticket import GroupTicket
from tallystick.storage.group.writer import GroupWriter
from tallystick.storage.local import LOCAL
from tallystick.storage.opening import Closing, closes, lock_log, opens_log, start_thread
from tallystick.storage.scheduling import threading
from tallystick.storage.signals import uninterrupted
from tallystick.systems.tally.format.layout import LOCK_NAME, NUMBER_MAX, segment_name
from tallystick.systems.tally.format.sealing import KeyProvider, require_packages
from tallystick.systems.tally.live.appender import LogEnd
from tallystick.systems.tally.live.backup import Moment, Progress, copy_log
from tallystick.systems.tally.live.groups.encoder import GroupEncoder
from tallystick.systems.tally.live.items import (
    RECORD_BYTES,
    Action,
    Bundle,
    Item,
    checked,
    size_of,
    too_large,
)
from tallystick.systems.tally.live.opening import Term, open_log
from tallystick.systems.tally.live.reclaim import Reclaimer, open_work
from tallystick.systems.tally.live.settings import Settings, capacity
from tallystick.systems.tally.read.claim import ANYONES, Claim
from tallystick.systems.tally.read.state import Element, LogState

Looked = TypeVar("Looked")
PLAIN_RECORD_BYTES: Final = 4
"""Bytes that a plain record adds to a group, without its body: one offset."""


class TallyLog(Closing):
    """An open native log. Safe for threads and tasks; one owner at a time.

    Args:
        path: the folder of the log; made if it does not exist.
        settings: how the log is written.
        key: provides the secret of an encrypted log.
        fs: the file system.
        term: the process leads others for this time.
        claim: what the log is taken for.

    Raises:
        LogLockedError: another owner has the log open.
        CorruptLogError: acknowledged data is damaged or missing, or it is another owner's log.
        UnsupportedFormatError: the log is of a later version, of another role, or encrypted and
            without its key.
        LogUnreadableError: a file cannot be read.

    Attributes:
        refusals: what was refused for lack of room, and what follows.
        findings: what recovery found.
        judgement: the answer about the log as recovery found it.
        capacity: payload bytes of a group at most, hence of one record or bundle.
        group_bytes: bytes of a group that forms by itself at most.
        append: appends a plain record; the ticket is done when it is durable. Raises
            `RecordTooLargeError` where it does not fit in a segment.
        append_durably: appends a plain record; returns its LSN when it is durable. Raises so too.
        commit: submits an item of at most ``group_bytes`` and waits for it; returns its LSN.
    """

    @opens_log
    def __init__(
        self,
        path: str,
        *,
        settings: Settings | None = None,
        key: KeyProvider | None = None,
        fs: FileSystem = LOCAL,
        term: Term | None = None,
        claim: Claim = ANYONES,
    ) -> None:
        self.path = path = absolute(path)
        self.settings = settings or Settings()
        self.key = secret_of(key, "key")
        require_packages(self.settings.compression, self.key)
        claim.require_folder(fs, path, self.key)
        fs.mkdir(path)
        self._lock = lock_log(fs, posixpath.join(path, LOCK_NAME), whole=True)
        self.fs = self._lock.fs
        try:
            recovered = open_log(self.fs, path, self.settings, self.key, term or Term(), claim)
        except BaseException:
            self._lock.release()
            raise
        appender = self._appender = recovered.appender
        self._state = recovered.state
        self._state_lock = threading.Lock()
        self._reclaimer = Reclaimer(appender, self._state, self._state_lock)
        self.findings: tuple[Finding, ...] = recovered.findings
        self.judgement = recovered.judgement
        control = appender.control
        self.capacity = capacity(control.segment_size, control.sector_size)
        self._encoder = GroupEncoder(appender, self._state, self._state_lock, self.capacity)
        self.refusals = self._encoder.refusals
        self.group_bytes = min(self.settings.group_bytes, self.capacity)
        self._writer = self._new_writer()
        self.append = self._writer.append
        self.append_durably = self._writer.append_durably
        self.commit = self._writer.commit
        self._closed = False
        register_in_child(self)
        self._mark_timer = IdleMarkTimer(self, self.settings.idle_mark_s)

    def _new_writer(self) -> GroupWriter[Item]:
        return GroupWriter(
            self._encoder.write,
            self._appender.sync,
            name=self.path,
            group_bytes=self.group_bytes,
            delay=self.settings.delay_s,
            siblings=self.settings.siblings,
            overhead=PLAIN_RECORD_BYTES,
            body_max=self.capacity - RECORD_BYTES,
            too_large=self._too_large,
            write_synced=self._encoder.write_synced(),
            log_end=None if type(self._appender.at) is LogEnd else self._appender.at,
        )

    # -- writing ------------------------------------------------------------------------

    def check_size(self, size: int) -> None:
        """Check that a plain record with a body of ``size`` bytes fits in a segment.

        Raises:
            RecordTooLargeError: it does not.
        """
        if size + RECORD_BYTES > self.capacity:
            raise self._too_large(size)

    def reserve_ahead(self, size: int) -> None:
        """Make the next segment in the background if ``size`` bytes do not fit in this one."""
        self._appender.reserve_ahead(size)

    def submit(self, item: Item, *, sync: bool = True) -> GroupTicket[Item]:
        """Submit any item; with ``sync=False`` it is written with the next group.

        Raises:
            RecordTooLargeError: it does not fit in a segment.
            TypeError, ValueError: a field of it is none that the format holds.
        """
        item = checked(item)
        size = size_of(item)
        if size > self.capacity:
            raise self._too_large(size)
        return self._writer.submit(item, size, sync=sync)

    def write_through(self, items: list[Item], before: Callable[[int], None]) -> Sequence[Answer]:
        """Write items together and sync them; return the LSN of each, or why it was refused.

        Nothing of what was refused is owed.

        Args:
            items: what to write.
            before: is called with the LSN of the first record, before anything is written.

        Raises:
            LogPoisonedError: a write or sync failed.
        """
        answers: list[Answer] = []

        def act() -> None:
            before(self._appender.at.next_lsn)
            answers.extend(self._encoder.write_each(items))
            self._appender.sync()

        self._writer.commit(Action(act), 0)
        self._writer.counted.records += len(items) - 1
        return answers

    def _too_large(self, size: int) -> RecordTooLargeError:
        return too_large(self.path, self.capacity, size)

    def flush(self) -> None:
        """Make everything submitted so far durable.

        Raises:
            LogWriteError: a part of it was refused.
        """
        self._writer.flush()
        if self.refusals.owes:
            self.barrier().wait()

    def barrier(self) -> GroupTicket[Item]:
        """Return a ticket that is done when everything submitted so far is durable."""
        return self.submit(Action(self.refusals.require_paid))

    def mark(self) -> None:
        """Note in the control block that everything so far is durable.

        Later damage to the last group is then not taken for a write that never finished.
        """
        if not self._appender.at.marked:
            self.submit(Action(self._appender.mark)).wait()

    # -- state --------------------------------------------------------------------------

    @contextlib.contextmanager
    def state(self) -> Iterator[LogState]:
        """Give the state after everything submitted before, which is durable or was refused.

        The state is locked meanwhile: writers wait. The block is not interrupted.
        """
        with contextlib.suppress(LogWriteError):
            self.flush()
        with uninterrupted, self._state_lock:
            yield self._state

    def left_open(self) -> list[int]:
        """Return the numbers of transactions that can only be rolled back: an owner left them."""
        with self.state() as state:
            return [number for number, one in state.open.items() if one.ending is None]

    @property
    def next_lsn(self) -> int:
        """LSN of the next record that will be written."""
        return self._appender.at.next_lsn

    @property
    def durable_lsn(self) -> int:
        """Every record up to this LSN is durable."""
        return self._appender.at.durable_lsn

    @property
    def first_segment(self) -> int:
        """Number of the oldest segment."""
        return self._appender.control.first_segment

    @property
    def written(self) -> tuple[int, int]:
        """The number of the segment that is written to, and the offset up to which it is."""
        at = self._appender.at
        end = at.end  # first: a roll meanwhile gives a number to which this end is too far
        return at.segment, end

    @property
    def last_segment(self) -> int:
        """Number of the segment that is written to."""
        return self._appender.at.segment

    @property
    def segment_size(self) -> int:
        """Bytes of a segment."""
        return self._appender.control.segment_size

    @property
    def checkpoint_lsn(self) -> int:
        """Plain records below this LSN were given up."""
        return self._appender.control.checkpoint_lsn

    @property
    def owner(self) -> str:
        """Whose log it is; empty if anyone's."""
        return self._appender.control.owner.decode("utf-8", "replace")

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
        """Free the oldest segments that are not needed; return their numbers.

        Args:
            checkpoint_lsn: plain, undo and redo records below it are given up, if it is larger than
                before.
            keep_from: a segment that, with all later ones, is kept.
        """
        checkpoint_lsn = integer(checkpoint_lsn, "lsn", 0, NUMBER_MAX)
        if keep_from is not None:
            keep_from = integer(keep_from, "keep_from", 0, NUMBER_MAX)
        freed: list[int] = []
        agreed = self._reclaimer.agreed()

        def act() -> None:
            freed.extend(self._reclaimer.free(checkpoint_lsn, keep_from, agreed))

        self.submit(Action(act)).wait()
        return freed

    def reclaim_soon(self, carry_after: int = 8, carry_most: int = 16) -> None:
        """Free the oldest segments that are not needed when the next group is written.

        Args:
            carry_after: if more segments are kept, open work in the oldest one is carried forward.
            carry_most: it is not if there are more decisions and entries than that.
        """
        agreed = self._reclaimer.agreed()

        def act() -> None:
            appender = self._appender
            first = appender.control.first_segment
            if appender.at.segment - first > carry_after:
                bundles = open_work(self._state, first + 1)
                if len(bundles) <= carry_most:
                    self.write_now(bundles)
            self._reclaimer.free(0, agreed)

        self.submit(Action(act), sync=False)

    def ask_before_reclaiming(self, may_go: Callable[[str], bool]) -> None:
        """Give up no segment from now on unless ``may_go(path)`` is true: readers need it.

        It is called oldest segment first, in the thread that reclaims.
        """
        self._reclaimer.ask_first(
            lambda number: may_go(posixpath.join(self.path, segment_name(number)))
        )

    def write_now(self, bundles: Sequence[Bundle]) -> None:
        """Write bundles durably; call it in an `Action` only."""
        self._encoder.write_durably(bundles)

    def elements_of(self, key: int) -> tuple[Element, ...]:
        """Return the live elements of an id; call it in an `Action` only."""
        return self._state.live.get(key, ())

    def retire_freed(self, keep_from: int | None) -> None:
        """Recycle the files of segments that were given up, below ``keep_from``."""
        with self._writer.exclusive():
            self._appender.retire_freed(keep_from)

    def hold(self, number: int) -> contextlib.AbstractContextManager[None]:
        """Keep the files of this segment and of all later ones while the context is open."""
        return self._appender.hold(number)

    def backup(self, target: str, progress: Progress | None = None) -> None:
        """Copy the log as of now to a new folder, durably, while it goes on being written.

        No segment is given up meanwhile.

        Args:
            target: a folder that is absent or empty.
            progress: called with the bytes copied so far and the bytes in all.

        Raises:
            LogWriteError: the target is not empty, or cannot be written; no harm to the log.
            LogLockedError: another backup to this target runs.
            LogUnreadableError: a segment of the log cannot be read.
            CorruptLogError: the copy does not hold the whole log.
        """
        with self._reclaimer.pinned():
            copy_log(self.fs, self.path, target, self.moment(), progress)

    def between_groups(self, look: Callable[[LogState, int, int], Looked]) -> Looked:
        """Call ``look(state, segment, next_lsn)`` between two groups; return what it returns.

        All records below ``next_lsn`` are durable and applied to the state.
        """
        found: list[Looked] = []

        def act() -> None:
            found.append(look(self._state, self._appender.at.segment, self._appender.at.next_lsn))

        self.submit(Action(act)).wait()
        return found[0]

    def moment(self) -> Moment:
        """Return where the log ends now, everything before that being durable."""
        moments: list[Moment] = []

        def act() -> None:
            at = self._appender.at
            moments.append(Moment(self._appender.control, at.segment, at.end, at.next_lsn))

        self.submit(Action(act)).wait()
        return moments[0]

    # -- end ----------------------------------------------------------------------------

    @closes
    def close(self) -> None:
        """Make everything submitted durable, note that it is, and close.

        A second call does nothing, nor does one in a forked child.
        """
        if self._closed:
            return
        self._closed = True
        self._mark_timer.stop()
        try:
            self.flush()
            self.mark()
        finally:
            self.abandon()

    @closes
    def abandon(self) -> None:
        """Close the files and release the log without noting that everything is durable."""
        self._closed = True
        self._mark_timer.stop()
        try:
            self._writer.close()
        finally:
            self._appender.close()
            self._lock.release()

    def forked(self) -> None:
        """Leave the log to its parent in a forked child."""
        self._closed = True


class IdleMarkTimer(Uncopied):
    """Calls ``mark`` of a log that was idle for ``seconds``, from a thread.

    The thread holds no strong reference to the log.
    """

    def __init__(self, log: TallyLog, seconds: float | None) -> None:
        self._stopped = threading.Event()
        if seconds is not None:
            thread = threading.Thread(
                target=_watch,
                args=(weakref.ref(log), self._stopped, seconds),
                name="tally-mark",
                daemon=True,
            )
            with contextlib.suppress(OSError):  # without it, later damage proves less
                start_thread(thread)

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()


def _watch(reference: weakref.ref[TallyLog], stopped: threading.Event, seconds: float) -> None:
    seen = -1
    while not stopped.wait(seconds):
        log = reference()
        if log is None:
            return
        if log.next_lsn != seen:
            seen = log.next_lsn
            continue
        with contextlib.suppress(TallystickError):  # the next writer gets the error
            log.mark()
            seen = log.next_lsn
        del log
