"""The lock file of a log, and the lock of its folder.

In: the path of a lock file. Out: a lock that one process at a time has; the file tells its process
id. A lock file that is not ours stays as it is.
"""

from __future__ import annotations

import contextlib
import os

from tallystick.errors import LogLockedError
from tallystick.posix import fcntl, pread
from tallystick.storage.local.descriptors import Descriptor, Place
from tallystick.storage.local.file import REFUSED

_OWNER_MAX = 20
"""Most bytes that a lock file of ours holds: a process id as text."""


class FileLock(Descriptor):
    """An exclusive ``flock`` on a lock file that holds its owner's process id as text."""

    __slots__ = ("_locked_folder",)

    def __init__(self, path: str, mode: int, at: Place, *, whole: bool = False) -> None:
        super().__init__(path, os.O_RDWR | os.O_CREAT, mode, at=at)
        _, self._locked_folder = at if whole else (path, None)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = pread(self.fd, 32, 0).decode("ascii", "replace").strip()
            self.close()
            if error.errno not in REFUSED:
                raise
            raise LogLockedError(
                "the log is open already",
                file=path,
                found=f"owner process {owner or 'unknown'}",
                advice="Close it there first; the lock of a process that ended is free",
            ) from error
        try:
            self._lock_folder()
            self._sign()
        except BaseException:
            self.close()
            raise

    def _lock_folder(self) -> None:
        """Lock the folder; not on a file system that has locks for files alone (NFS)."""
        if self._locked_folder is None:
            return
        try:
            fcntl.flock(self._locked_folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in REFUSED:
                return
            raise LogLockedError(
                "the log is open already, and its lock file was deleted meanwhile",
                file=self.path,
                advice="Close it in the process that has it; leave the file `lock` where it is",
            ) from error

    def _sign(self) -> None:
        """Write the process id, over one of an earlier owner and over nothing else."""
        held = pread(self.fd, _OWNER_MAX + 1, 0)
        owner = held.strip(b"\0\n")  # zeros: a power cut has kept the size and lost the bytes
        if len(held) > _OWNER_MAX or (owner and not owner.isdigit()):
            raise LogLockedError(
                "the lock file holds something that no lock of ours does",
                file=self.path,
                expected="a process id, or nothing",
                found=f"{os.fstat(self.fd).st_size} bytes, beginning {held[:8].hex()}",
                advice="Find out whose file it is and move it away; it was left as it is",
            )
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Unlock the folder, and close the lock file, which unlocks that."""
        folder, self._locked_folder = self._locked_folder, None
        if folder is not None and self._fd >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_UN)
        self.close()
