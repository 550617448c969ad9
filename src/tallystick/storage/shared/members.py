"""The processes that share a log: who they are, and which of them live.

In: a folder and the settings that all must have. Out: a `Membership`. The file ``shared.members``
has a place for each; a lock on one byte of it, which the kernel frees when the process ends, says
that its process lives. Besides, each of them holds the log's lock file shared, so that nobody opens
the log alone; who is alone at first makes the file anew, whatever an earlier boot has left.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from typing import Final

from tallystick.errors import BusyError, LogLockedError, UnsupportedFormatError
from tallystick.posix import O_DIRECTORY
from tallystick.storage.fork import Uncopied, register_in_child
from tallystick.storage.scheduling import threading, time
from tallystick.storage.shared import kernel
from tallystick.storage.shared.memory import SharedMemory
from tallystick.storage.signals import uninterrupted

MEMBERS_MAX: Final = 256
"""Processes that share a log, at most."""
PREFIX: Final = "shared."
"""Names of the files of a shared log begin so; they are no part of the log."""
VERSION: Final = 3
"""Of the layout of all these files; other versions are refused."""
MEMBERS_FILE: Final = PREFIX + "members"
LOCK_WAIT_S: Final = 5.0
"""Time in which another process prepares a log that it opens at the same moment."""

_MAGIC: Final = int.from_bytes(b"TLYSHARE", "little")
_WORDS: Final = 8
"""Words of a place: start in milliseconds, pid, first segment held."""
_SIZE: Final = (1 + MEMBERS_MAX) * _WORDS * 8
_START, _PID, _HELD = range(3)
_BOOT, _DIGEST = slice(2, 4), slice(4, 6)
_POLL_S: Final = 0.01


def digest(*parts: bytes) -> tuple[int, int]:
    """Return two words that stand for all parts."""
    whole = hashlib.sha256(b"".join(hashlib.sha256(one).digest() for one in parts)).digest()
    low, high = struct.unpack_from("QQ", whole)
    return low, high


class Membership(Uncopied):
    """One opener's place among the processes that share a log.

    Args:
        folder: The log's folder, which exists.
        lock_name: The log's lock file in it.
        settings: Bytes that must be the same in all processes.
        create: Is called while no other process can have the log open.
        place: A path to the folder that holds wherever it is moved; None for ``folder``.

    Attributes:
        number: The place, below `MEMBERS_MAX`; that of a process that ended is used again.
        start_ms: When it was taken, in milliseconds since 1970.

    Raises:
        LogLockedError: A process has the log open alone, or on another machine.
        UnsupportedFormatError: The other processes have other settings, or another version.
        BusyError: There are too many processes.
    """

    def __init__(
        self,
        folder: str,
        lock_name: str,
        settings: bytes,
        create: Callable[[], None],
        *,
        place: str | None = None,
    ) -> None:
        self.folder = folder
        self.place = place or folder
        self._holds: list[int] = []
        self._guard = threading.Lock()
        self._left = False
        """The place is that of another process, or may be."""
        self._boot, self._digest = digest(kernel.boot_id()), digest(settings)
        # A lock file can be deleted while it is locked, and the folder only with the log.
        self._folder_lock = kernel.open_file(f"{self.place}/.", os.O_RDONLY | O_DIRECTORY)
        try:
            self._lock = kernel.open_file(f"{self.place}/{lock_name}", os.O_RDWR | os.O_CREAT)
            try:
                self._join(create)
            except BaseException:
                self._lock.close()
                raise
        except BaseException:
            self._folder_lock.close()
            raise
        register_in_child(self)

    def _join(self, create: Callable[[], None]) -> None:
        deadline = time.monotonic() + LOCK_WAIT_S
        while not self._try_lock(create):
            if time.monotonic() > deadline:
                raise LogLockedError(
                    "a process has the log open alone",
                    file=self.folder,
                    advice="Close it there, or open it there with shared=True",
                )
            time.sleep(_POLL_S)
        self._memory = SharedMemory(f"{self.place}/{MEMBERS_FILE}", _SIZE)
        try:
            self._check()
            self.number = self._take_place()
        except BaseException:
            self._memory.close()
            raise

    def _try_lock(self, create: Callable[[], None]) -> bool:
        """Lock the log shared; whoever is alone, and can lock it exclusively, prepares it first."""
        if self._lock_both(shared=False):
            create()
            self._make_anew()
        # In between another one may be alone, and make anew what is read only after this.
        return self._lock_both(shared=True)

    def _lock_both(self, *, shared: bool) -> bool:
        if not kernel.try_lock(self._folder_lock, shared=shared):
            return False
        if kernel.try_lock(self._lock, shared=shared):
            return True
        kernel.unlock(self._folder_lock)
        return False

    def _make_anew(self) -> None:
        """Remove what no process uses any more, and write the settings."""
        for name in kernel.names(self.place):
            if name.startswith(PREFIX):
                kernel.remove(f"{self.place}/{name}")
        fresh = f"{self.place}/{MEMBERS_FILE}.new"
        memory = SharedMemory(fresh, _SIZE, create=True)
        memory.words[0], memory.words[1] = _MAGIC, VERSION
        memory.words[2], memory.words[3] = self._boot
        memory.words[4], memory.words[5] = self._digest
        memory.close()
        kernel.rename(fresh, f"{self.place}/{MEMBERS_FILE}")

    def _check(self) -> None:
        words = self._memory.words
        if words[0] != _MAGIC or words[1] != VERSION:
            raise UnsupportedFormatError(
                "the log is shared by processes with another version of this program",
                file=f"{self.folder}/{MEMBERS_FILE}",
                expected=f"version {VERSION}",
                found=f"version {words[1]}",
                advice="Run one version in all of them, or close the log in the others first",
            )
        if tuple(words[_BOOT]) != self._boot:
            raise LogLockedError(
                "processes on another machine share the log",
                file=f"{self.folder}/{MEMBERS_FILE}",
                advice="A log is shared by the processes of one machine; close it there",
            )
        if tuple(words[_DIGEST]) != self._digest:
            raise UnsupportedFormatError(
                "the processes that share the log opened it with other settings, or another key",
                file=f"{self.folder}/{MEMBERS_FILE}",
                advice="Open it with the same settings everywhere, or close it in the others first",
            )

    def _take_place(self) -> int:
        for number in range(MEMBERS_MAX):
            if kernel.try_lock_byte(self._memory.file, number):
                words = self._memory.words
                base = (1 + number) * _WORDS
                self.start_ms = max(time.time_ns() // 1_000_000, words[base + _START] + 1)
                words[base + _HELD] = 0
                words[base + _PID] = kernel.process_id()
                words[base + _START] = self.start_ms
                return number
        raise BusyError(
            f"{MEMBERS_MAX} processes share the log already",
            file=self.folder,
            advice="Close it in one of them first",
        )

    # -- the others -------------------------------------------------------------------------

    def is_alive(self, number: int) -> bool:
        """Return True if a process has this place."""
        if number == self.number:
            return True
        return kernel.is_byte_locked(self._memory.file, number)

    def lives_since(self, number: int) -> int | None:
        """Return when the process with this place took it, in milliseconds; None without one."""
        if not 0 <= number < MEMBERS_MAX or not self.is_alive(number):
            return None
        return self._memory.words[(1 + number) * _WORDS + _START]

    def first_held(self) -> int | None:
        """Return the first segment that a living process reads; None if none does."""
        every = self._memory.words[_WORDS + _HELD :: _WORDS].tolist()
        held = [first for number, first in enumerate(every) if first and self.is_alive(number)]
        return min(held, default=None)

    @contextlib.contextmanager
    def hold(self, segment: int) -> Iterator[None]:
        """Have this segment and all later ones kept, whoever leads."""
        try:
            self._holds.append(segment)
            self._show_held()
            yield
        finally:
            with uninterrupted:
                self._holds.remove(segment)
                self._show_held()

    def _show_held(self) -> None:
        with self._guard:
            if not self._left:  # what is half read may outlive its log
                held = min(self._holds, default=0)
                self._memory.words[(1 + self.number) * _WORDS + _HELD] = held

    def close(self) -> None:
        """Leave the place and the log to the others."""
        with self._guard:
            self._left = True
        self._memory.close()
        self._lock.close()
        self._folder_lock.close()

    def forked(self) -> None:
        """Leave the place to the parent, in whose memory a child would write."""
        self._guard = threading.Lock()
        self._left = True
