"""Who leads: one process per epoch, and a file of shared memory for each epoch.

In: a folder, and processes that find out that nobody leads. Out: one of them leads the next epoch.

    shared.<epoch>    a header, and a mailbox for every member (`tallystick.storage.shared.mailbox`)

1. A process claims epoch n by making the file of that number, whole and with the heartbeat in it,
   under a name that nobody had: one process succeeds. It holds the file's lock as long as it lives.
2. It *deposes* every earlier epoch by a word in its file, then opens the log: recovery. If not all
   leaders before it are proved to be dead, it goes on in a new segment, whose header says where the
   old one ended, and uses no file that a former leader may have open to write, except for the
   control block, where the epoch in the generation makes the later one count.
3. It copies the table of *ends* of the last epoch that was ready, adds the LSN that recovery found,
   and is *ready*. Members attach to the newest epoch only.
4. A leader looks at the word of 2 before every change of a file, and after a sync before an answer.
   It ends its epoch when it closes the log, or by a failure.
5. An epoch is replaced if it has ended, if its lock is free, if its leader is stopped, or if its
   heart has not beaten for `SILENCE_S`.

Invariants:

E1. Each epoch has one leader: the file's name is made once, and a claim counts only if no newer
    file is there after it. Numbers grow; the control block holds the last one durably.
E2. Nothing that a deposed leader does late is seen. It can be stopped between look and system call:
    that one call writes after the stated end of a segment, an older generation of the control
    block, or a file that nobody else uses; a rename never replaces; its words go to its own file.
E3. An answer is given only for records that are in the log for good: they were written before the
    leader was deposed (4), so the next recovery has read them.
E4. The end of an epoch, in the table, is the same for all who ask: of what was handed over in it,
    exactly what has a smaller LSN is in the log.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from enum import IntEnum
from typing import Final

from tallystick.storage.scheduling import time
from tallystick.storage.shared import kernel
from tallystick.storage.shared.members import MEMBERS_MAX, PREFIX
from tallystick.storage.shared.memory import SharedMemory

SILENCE_S: Final = 5.0
"""A leader whose heart has not beaten for so long is replaced: it is frozen, or its disk hangs."""
STOPPED_S: Final = 0.3
"""The same for one that is stopped by a signal or a debugger."""
BEAT_S: Final = 0.05
"""Time between two heartbeats."""
BOX_BYTES: Final = 32 << 10
"""Bytes of a mailbox."""

_HEADER: Final = 8192
_SIZE: Final = _HEADER + MEMBERS_MAX * BOX_BYTES
_ENDS: Final = 32
"""Words before the table of ends."""
_ENDS_MAX: Final = 200
"""Entries of the table; processes that were away for longer get an error."""
REQUESTS: Final = 512
"""Words from here on: the number of the last request of each member."""
ANSWERS: Final = REQUESTS + MEMBERS_MAX
"""Words from here on: the number of the last request of each member that was answered."""


class Phase(IntEnum):
    """The phases of an epoch."""

    RECOVERING = 0
    READY = 1
    CLOSED = 2
    """Its leader has closed the log: all that was answered is in it, and no more."""
    FAILED = 3
    """A write or sync has failed: nothing more is answered by it."""


class _Word:
    """A word of the header as an attribute."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, epoch: Epoch, _: object = None) -> int:
        return epoch.words[self._index]

    def __set__(self, epoch: Epoch, value: int) -> None:
        epoch.words[self._index] = value


class Epoch(SharedMemory):
    """The shared memory of one epoch; its words are attributes.

    Attributes:
        number: The epoch.
        phase: A `Phase`.
        deposed: 1 once a later epoch was claimed.
        beat_ns: The monotonic clock, in nanoseconds, when the leader's heart beat last.
        next_lsn: The LSN of the next record.
        durable_lsn: Every record up to this LSN is durable.
        first_segment: The oldest segment.
        last_segment: The segment that is written to.
        checkpoint_lsn: Plain records below this LSN were given up.
        bell: Changes with every request; the leader sleeps on it.
        pid: The leader's process.
        started: When that began, see `kernel.start_time`.
        ends_count: Entries in the table of ends.
        syncs: Groups that the leader has written and synced.
        turns: How often the leader has looked at all requests, and answered what was there.
    """

    number = _Word(0)
    phase = _Word(1)
    deposed = _Word(2)
    beat_ns = _Word(3)
    next_lsn = _Word(4)
    durable_lsn = _Word(5)
    first_segment = _Word(6)
    last_segment = _Word(7)
    checkpoint_lsn = _Word(8)
    bell = _Word(9)
    pid = _Word(10)
    started = _Word(11)
    ends_count = _Word(12)
    syncs = _Word(13)
    turns = _Word(14)
    bell_word: Final = 9
    phase_word: Final = 1

    def __init__(self, path: str, *, create: bool = False) -> None:
        super().__init__(path, _SIZE, create=create)

    def box(self, member: int) -> int:
        """Return the offset of a member's mailbox, in bytes."""
        return _HEADER + member * BOX_BYTES

    def beat(self) -> None:
        """Say that the leader lives."""
        self.beat_ns = time.monotonic_ns()

    def enter(self, phase: Phase) -> None:
        """Begin a phase, and wake whoever waits for anything in this epoch."""
        self.phase = phase
        self.wake_all()

    def wake_all(self) -> None:
        """Wake everyone who waits for anything in this epoch."""
        kernel.wake(self.address(Epoch.phase_word))
        kernel.wake(self.address(Epoch.bell_word))
        requests = self.words[REQUESTS:ANSWERS].tolist()
        answers = self.words[ANSWERS : ANSWERS + MEMBERS_MAX].tolist()
        for member, (request, answer) in enumerate(zip(requests, answers, strict=True)):
            if request != answer:
                kernel.wake(self.address(ANSWERS + member))

    # -- ends -------------------------------------------------------------------------------

    def ends(self) -> list[tuple[int, int]]:
        """Return the epochs that were ready, with the LSN at which each began, in order."""
        words = self.words[_ENDS : _ENDS + 2 * self.ends_count]
        return list(zip(words[::2], words[1::2], strict=True))

    def set_ends(self, ends: list[tuple[int, int]]) -> None:
        """Write the table; the leader does, before the epoch is ready."""
        kept = ends[-_ENDS_MAX:]
        for row, (number, lsn) in enumerate(kept):
            self.words[_ENDS + 2 * row] = number
            self.words[_ENDS + 2 * row + 1] = lsn
        self.ends_count = len(kept)

    def end_of(self, number: int) -> int | None:
        """Return the LSN at which an earlier epoch ended; None if that is forgotten."""
        ends = self.ends()
        if number < ends[0][0] and len(ends) == _ENDS_MAX:
            return None
        return next((lsn for later, lsn in ends if later > number), None)

    # -- who leads ----------------------------------------------------------------------------

    @property
    def was_ready(self) -> bool:
        """True once its leader had recovered the log, and had stored where it stands."""
        return self.next_lsn > 0

    def is_current(self) -> bool:
        """Return True while its leader answers."""
        return self.phase == Phase.READY and not self.deposed

    def is_led(self) -> bool:
        """Return True while a process holds the leader's lock."""
        if not kernel.try_lock(self.file, shared=True):
            return True
        kernel.unlock(self.file)
        return False

    def is_over(self) -> bool:
        """Return True if another process should lead."""
        if self.phase in (Phase.CLOSED, Phase.FAILED) or not self.is_led():
            return True
        if sys.is_finalizing() and self.pid == kernel.process_id():
            return True  # the threads of this process have ended
        silence = (time.monotonic_ns() - self.beat_ns) / 1e9
        if silence < STOPPED_S:
            return False
        return silence > SILENCE_S or kernel.is_stopped(self.pid, self.started)


def numbers(folder: str) -> list[int]:
    """Return the numbers of the epochs whose files are there, ascending."""
    names = (name.removeprefix(PREFIX) for name in kernel.names(folder))
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def open_epoch(folder: str, number: int) -> Epoch | None:
    """Open the shared memory of an epoch; None if it is gone."""
    try:
        return Epoch(path_of(folder, number))
    except FileNotFoundError:
        return None


def path_of(folder: str, number: int) -> str:
    """Return the path of an epoch's file."""
    return f"{folder}/{PREFIX}{number}"


def claim(folder: str, number: int) -> Epoch | None:
    """Claim an epoch; None if another process was faster."""
    fresh = f"{folder}/{PREFIX}{number}.{secrets.token_hex(8)}.new"
    try:
        return _claimed(folder, number, fresh)
    except BaseException as error:
        with contextlib.suppress(OSError):
            kernel.remove(fresh)
        # It exists: another process was faster. It is gone: one that leads a later epoch already
        # has cleared it away, see `remove_before`.
        if isinstance(error, FileExistsError | FileNotFoundError):
            return None
        raise


def _claimed(folder: str, number: int, fresh: str) -> Epoch | None:
    epoch = Epoch(fresh, create=True)
    try:
        # Never contended: nobody else has the file open.
        kernel.try_lock(epoch.file, shared=False)
        epoch.number, epoch.pid = number, kernel.process_id()
        epoch.started = kernel.start_time(epoch.pid)
        epoch.beat()
        epoch.path = path_of(folder, number)
        kernel.rename_new(fresh, epoch.path)
        if numbers(folder)[-1] > number:  # E1: the file that it follows was removed meanwhile
            kernel.remove(epoch.path)
            raise FileExistsError(epoch.path)
    except BaseException:
        epoch.close()
        raise
    return epoch


def depose(folder: str, number: int) -> tuple[bool, list[tuple[int, int]]]:
    """Depose all epochs before one, and wake who waits in them.

    Returns:
        True if all their leaders are proved to have ended; the table of ends of the last of them
        that was ready.
    """
    gone, ends = True, []
    for one in numbers(folder):
        epoch = open_epoch(folder, one) if one < number else None
        if epoch is None:
            continue
        with contextlib.closing(epoch):
            epoch.deposed = 1
            gone = gone and not epoch.is_led()
            if epoch.ends_count:
                ends = epoch.ends()
            epoch.wake_all()
    return gone, ends


def remove_before(folder: str, number: int) -> None:
    """Remove the files of earlier epochs whose leaders have ended."""
    for one in numbers(folder):
        epoch = open_epoch(folder, one) if one < number else None
        if epoch is not None:
            with contextlib.closing(epoch):
                if not epoch.is_led():
                    beside = f"{PREFIX}{one}."
                    names = [name for name in kernel.names(folder) if name.startswith(beside)]
                    for name in (f"{PREFIX}{one}", *names):
                        with contextlib.suppress(FileNotFoundError):
                            kernel.remove(f"{folder}/{name}")
