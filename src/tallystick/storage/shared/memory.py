"""A file that several processes map: words of 8 bytes, and bytes between them.

In: a path and a size. Out: a mapping whose words are read and stored in one step each. The space
is allocated when the file is made, so that no store fails for want of space.
"""

from __future__ import annotations

import os
from typing import Final

from tallystick.errors import LogUnreadableError
from tallystick.storage.fork import Uncopied
from tallystick.storage.shared import kernel

WORD: Final = 8
"""Bytes of a word."""


class SharedMemory(Uncopied):
    """A mapped file of ``size`` bytes; ``words`` are its words, native byte order.

    Args:
        path: The file.
        size: Its size in bytes.
        create: Make it; there must be none of this name.

    Raises:
        LogUnreadableError: The file has another size.
    """

    def __init__(self, path: str, size: int, *, create: bool = False) -> None:
        self.path = path
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        self.file = kernel.open_file(path, flags)
        try:
            if create:
                kernel.allocate(self.file, size)
            elif self.file.size() != size:
                raise LogUnreadableError(
                    "shared memory of another version, or damaged",
                    file=kernel.real_path(path),
                    expected=f"{size} bytes",
                    found=f"{self.file.size()} bytes",
                    advice="Close the log in every process; the first one to open it makes it anew",
                )
            self.bytes, self.words, self._address = kernel.map_file(path, size)
        except BaseException:
            self.file.close()
            raise

    def address(self, word: int) -> int:
        """Return the address of a word, for `tallystick.storage.shared.kernel`."""
        return self._address + word * WORD

    def close(self) -> None:
        """Close the file. The mapping goes with the last one who uses it."""
        self.file.close()
