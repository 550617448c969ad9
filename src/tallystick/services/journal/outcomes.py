"""Which branches a journal has committed, in a file beside its log.

In: global ids. Out: the proof that a branch which is no longer in doubt was committed, and not
rolled back by hand or never here. An id is written before the commit of a prepared branch is
submitted: only the processes that have a journal open end its branches, so a branch that has an id
here and is not in doubt any more has committed. The file is not synced: after a power cut an id may
be missing, and then the journal's log is read for the proof.

    first line      identity of a journal whose log has none, 32 hexadecimal digits, or empty
    other lines     global ids, lower-case hexadecimal
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Sequence
from functools import partial

from tallystick.storage.files import FileSystem, absolute, read_file, write_whole
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.local import LOCAL, locked_to_append
from tallystick.storage.signals import uninterrupted

FILE = "outcomes"


class Outcomes(Uncopied):
    """The file of one journal. Nothing is made before the first call that needs it.

    Args:
        folder: the directory of the journal.
        fs: its file system.
    """

    def __init__(self, folder: str | os.PathLike[str], fs: FileSystem = LOCAL) -> None:
        place = absolute(folder)
        self._file = f"{place}/{FILE}"
        self._fs = fs.hold(place)
        self._lock = OwnedLock(partial(nested_call_error, place))

    def add(self, gtrid: bytes) -> None:
        """Note a branch that is about to be committed. Raises `OSError`."""
        line = f"\n{gtrid.hex()}\n".encode()  # the last line may have been cut
        with uninterrupted, self._lock, locked_to_append(self._fs, self._file) as file:
            file.pwrite(line, file.size())

    def all(self) -> Sequence[bytes]:
        """Return the global ids. Raises `OSError`."""
        with uninterrupted, self._lock:
            return list(self._read()[1])

    def forget(self, gtrids: Collection[bytes]) -> None:
        """Remove ids. Raises `OSError`."""
        over = set(gtrids)
        with uninterrupted, self._lock, locked_to_append(self._fs, self._file):
            identity, known = self._read()
            if not known.keys().isdisjoint(over):
                self._write(identity, [gtrid for gtrid in known if gtrid not in over])

    def identity(self) -> str:
        """Return the identity in the file, which is made at the first call. Raises `OSError`."""
        with uninterrupted, self._lock, locked_to_append(self._fs, self._file):
            identity, known = self._read()
            if not identity:
                identity = secrets.token_hex(16)
                self._write(identity, known)
            return identity

    def _read(self) -> tuple[str, dict[bytes, None]]:
        if not self._fs.exists(self._file):
            return "", {}
        content = read_file(self._fs, self._file).decode("ascii", "replace")
        first, *lines = content.split("\n")
        found: dict[bytes, None] = {}
        for line in lines:
            try:
                found[bytes.fromhex(line)] = None
            except ValueError:
                continue  # cut by the end of the process; its commit was never submitted
        found.pop(b"", None)
        return first, found

    def _write(self, identity: str, gtrids: Collection[bytes]) -> None:
        lines = [identity, *(gtrid.hex() for gtrid in gtrids), ""]
        write_whole(self._fs, self._file, ["\n".join(lines).encode("ascii")])
