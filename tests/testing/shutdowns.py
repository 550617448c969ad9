"""Real file systems that are shut down while they are written to, as by a loss of power.

In: the name of a kind of file system. Out: a folder on a disk of its own: a loop device over a file
in memory. After `Disk.shut_down` nothing more reaches the device, whatever the kernel still holds;
mounted again, the file system replays its journal. Only for root, on Linux; btrfs has no such call.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from tests.memory import memory

SHUTDOWN = 0x8004587D
"""`EXT4_IOC_SHUTDOWN`, and `XFS_IOC_GOINGDOWN`, which has the same number."""
WITH_JOURNAL, WITHOUT_JOURNAL = 1, 2
"""Flush the journal of the file system before, or not."""
MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-F"),
    "ext4-journal": ("mkfs.ext4", "-q", "-F"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
}
"""Commands that make a file system in a file."""
_OPTIONS = {"ext4-journal": "loop,data=journal"}
_SIZE = 320 << 20
_BUSY_S = 20.0


class Disk:
    """A file system on a loop device, mounted at ``folder``; a context manager."""

    def __init__(self, kind: str) -> None:
        self._home = Path(tempfile.mkdtemp(dir=memory()))
        self._image, self.folder = self._home / "image", self._home / "disk"
        self._kind = kind
        self.folder.mkdir()

    def __enter__(self) -> Disk:
        with self._image.open("wb") as file:
            file.truncate(_SIZE)
        _run(*MAKE[self._kind], str(self._image))
        self.mount()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("umount", "-l", str(self.folder))  # a test that failed may have files open
        shutil.rmtree(self._home, ignore_errors=True)

    def mount(self) -> None:
        """Mount it; a journal that was left is replayed."""
        options = _OPTIONS.get(self._kind, "loop")
        _run("mount", "-o", options, str(self._image), str(self.folder))

    def unmount(self) -> None:
        """Unmount it, as soon as nobody uses it."""
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                return _run("umount", str(self.folder))
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def write_back(self) -> None:
        """Have everything that was written reach the device, as the kernel does now and then."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            ctypes.CDLL(None).syncfs(folder)
        finally:
            os.close(folder)

    def shut_down(self, rng: random.Random) -> None:
        """Let nothing more reach the device.

        A sync that is under way may succeed without: of Linux 6.18, ext4 and `fdatasync` of a file
        that grows. What it acknowledged must not be counted.
        """
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            flag = rng.choice((WITH_JOURNAL, WITHOUT_JOURNAL))
            fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(folder)

    def restart(self) -> None:
        """Mount what the device held when it was shut down."""
        self.unmount()
        self.mount()


def possible(kind: str) -> bool:
    """Return whether such a disk can be made here."""
    programs = (MAKE[kind][0], "mount", "umount")
    known = Path("/proc/filesystems").read_text().split()
    own = kind.partition("-")[0] in known and all(map(shutil.which, programs))
    return own and os.geteuid() == 0 and Path("/dev/loop-control").exists()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
