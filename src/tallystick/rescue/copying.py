"""A copy of files and folders that stands alone: nothing in it leads back to the original.

In: a file or a folder, and which of its files are unpacked. Out: the copy, and where each folder of
the original is in it. What links lead to is copied in their place, and so is a log that a database
has elsewhere.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Container
from contextlib import ExitStack
from pathlib import Path

from tallystick.storage.local import LOCAL
from tallystick.storage.source import logical_name, open_source
from tallystick.systems.protocol import OwnLog
from tallystick.systems.registry import systems

_PIECE = 1 << 20


class Copying:
    """Copies durably, and knows what was copied where; pipes and devices are left out.

    ``own_logs`` are the folders of databases in the copy that have a log from elsewhere.
    """

    def __init__(self, packed: Container[str]) -> None:
        """Remember which files are ``packed``, and have to be unpacked."""
        self.own_logs: list[tuple[Path, OwnLog]] = []
        self._packed = packed
        self._places: defaultdict[str, list[Path]] = defaultdict(list)

    def places(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Return every place in the copy that a folder of the original has, however it is named.

        For a folder that is not there: the places that it would have.
        """
        if found := self._places.get(os.path.realpath(folder)):
            return found
        path = Path(folder)
        return [one / path.name for one in self._places.get(os.path.realpath(path.parent), [])]

    def copy(self, origin: Path, copied: Path) -> None:
        """Copy a file or a folder with all that is in it."""
        try:
            status = origin.stat()
        except FileNotFoundError:  # a link that leads nowhere
            return
        if stat.S_ISREG(status.st_mode):
            self._file(origin, copied, status, None)
        elif stat.S_ISDIR(status.st_mode):
            self._folder(origin, copied, status)

    def _file(
        self, origin: Path, copied: Path, status: os.stat_result, content: bytes | None
    ) -> None:
        with copied.open("xb") as out, ExitStack() as opened:
            if content is not None:
                out.write(content)
            elif str(origin) in self._packed:
                out.write(opened.enter_context(open_source(str(origin))).data)
            else:
                shutil.copyfileobj(opened.enter_context(origin.open("rb")), out, _PIECE)
            out.flush()
            os.fsync(out.fileno())
            os.fchmod(out.fileno(), stat.S_IMODE(status.st_mode) | stat.S_IRUSR | stat.S_IWUSR)
        os.utime(copied, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _folder(self, origin: Path, copied: Path, status: os.stat_result) -> None:
        every = (one.own_log(origin.as_posix()) for one in systems())
        own = next((one for one in every if one is not None), None)
        copied.mkdir(0o700)
        self._places[os.path.realpath(origin)].append(copied)
        for one in sorted(origin.iterdir()):
            if own is not None and one.name in own.settings:
                content = own.settings[one.name]
                self._file(one, copied / logical_name(one.name), one.stat(), content)
            elif own is None or one.name != own.name:
                self.copy(one, copied / self._name(one))
        if own is not None:
            self.own_logs.append((copied, own))
            self._bring(own, copied / own.name, status)
        LOCAL.sync_dir(str(copied.absolute()))
        copied.chmod(stat.S_IMODE(status.st_mode) | stat.S_IRWXU)

    def _bring(self, own: OwnLog, copied: Path, status: os.stat_result) -> None:
        """Copy a log from elsewhere; a folder without files might be one that a start fills."""
        self._places[os.path.realpath(own.origin)].append(copied)
        if not own.files:
            return
        copied.mkdir(0o700)
        for one in map(Path, own.files):
            self.copy(one, copied / self._name(one))
        LOCAL.sync_dir(str(copied.absolute()))
        copied.chmod(stat.S_IMODE(status.st_mode) | stat.S_IRWXU)

    def _name(self, origin: Path) -> str:
        return logical_name(str(origin)) if str(origin) in self._packed else origin.name
