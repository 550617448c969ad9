"""Disposers: what gets a redundant log file out of the log directory.

In: the path of a closed, redundant file. Out: the file is deleted, moved, compressed, or given to
a function, a command or a class of the user. `archive` has one for archives, `retention` those
that wait for a reader.
"""

from __future__ import annotations

import gzip
import os
import posixpath
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path

from tallystick.callables import require_done, require_plain
from tallystick.disposal.worker import LogDisposer, require_disposer
from tallystick.storage.files import FileSystem, absolute
from tallystick.storage.local import LOCAL, write_anew

_PIECE = 1 << 20
AnyDisposer = LogDisposer | type[LogDisposer] | Callable[[str], None] | str
"""A disposer, its class, a function of the path, or the dotted name of any of these."""


def disposer_of(disposer: AnyDisposer, fs: FileSystem = LOCAL) -> LogDisposer:
    """Make a disposer of what a user has configured.

    Args:
        disposer: ``"delete"``, or see `AnyDisposer`. A class is called without arguments.
        fs: The file system to delete from.

    Raises:
        ValueError: A name that cannot be imported, or something that cannot dispose of a file.
        TransactionUsageError: Its calls have to be awaited.
    """
    if disposer == "delete":
        return DeleteDisposer(fs)
    found = _named(disposer) if isinstance(disposer, str) else disposer
    if isinstance(found, type):
        try:
            found = found()
        except TypeError as error:
            raise ValueError(f"{disposer!r} cannot be made without arguments: {error}") from error
    if hasattr(found, "dispose"):
        return require_disposer(found)
    if callable(found):
        return FunctionDisposer(found)
    raise ValueError(f"disposer {disposer!r} has no method dispose and cannot be called")


def _named(name: str) -> AnyDisposer:
    module, _, attribute = name.rpartition(".")
    try:
        found: AnyDisposer = getattr(import_module(module), attribute)
    except Exception as error:  # a module may raise anything when it is imported
        raise ValueError(f"no disposer named {name!r}: {error}") from error
    return found


@dataclass(frozen=True, slots=True)
class DeleteDisposer:
    """Deletes the file: the default."""

    fs: FileSystem = LOCAL

    def dispose(self, path: str) -> None:
        """Delete the file."""
        self.fs.remove(path)


@dataclass(frozen=True, slots=True)
class FunctionDisposer:
    """Calls a function with the path."""

    function: Callable[[str], None]

    def __post_init__(self) -> None:
        require_plain(self.function, "a function that is a disposer")

    def dispose(self, path: str) -> None:
        """Call the function; what it raises is a failure."""
        call: Callable[[str], object] = self.function
        require_done(call(path), "a function that is a disposer")


@dataclass(frozen=True, slots=True)
class CommandDisposer:
    """Runs a command with the path as its last argument.

    ``timeout`` is in seconds; None waits without limit.
    """

    command: Sequence[str]
    timeout: float | None = None

    def dispose(self, path: str) -> None:
        """Run the command; an exit status other than 0 is a failure."""
        subprocess.run([*self.command, path], check=True, timeout=self.timeout)


@dataclass(frozen=True, slots=True)
class _FolderDisposer(ABC):
    """Puts the file into a folder, under its own name or another one."""

    folder: str

    def __post_init__(self) -> None:
        """Make the folder absolute: the working directory may change."""
        object.__setattr__(self, "folder", absolute(self.folder))

    def places(self) -> Sequence[str]:
        """Return the folder."""
        return (self.folder,)

    def dispose(self, path: str) -> None:
        """Put the file into the folder; see `dispose_as`."""
        self.dispose_as(path, posixpath.basename(path))

    @abstractmethod
    def dispose_as(self, path: str, name: str) -> None:
        """Put the file into the folder as ``name``."""


@dataclass(frozen=True, slots=True)
class MoveDisposer(_FolderDisposer):
    """Moves the file to another folder, on this file system or another one.

    A file of that name that is there already counts as moved if it is identical.
    """

    def dispose_as(self, path: str, name: str) -> None:
        """Move the file to ``name`` in the folder; durable on return.

        Raises:
            FileExistsError: The folder has another file of that name, or the file itself.
        """
        require_away(path, self.folder)
        LOCAL.mkdir(self.folder)
        target = Path(self.folder) / name
        if not target.exists():
            install(path, target, _copy)
        elif digest(path) != digest(str(target)):
            raise FileExistsError(f"{target} exists and differs from {path}")
        make_durable(target)
        Path(path).unlink()


@dataclass(frozen=True, slots=True)
class CompressDisposer(_FolderDisposer):
    """Moves the file to another folder as ``.gz``; readers take it as it is.

    A file that is there already counts as moved if it unpacks to the same bytes. ``level`` is that
    of gzip, 1 to 9.
    """

    level: int = 6

    def dispose_as(self, path: str, name: str) -> None:
        """Compress the file into the folder, as ``name`` and ``.gz``; durable on return.

        Raises:
            FileExistsError: The folder has another file of that name, or the file itself.
        """
        require_away(path, self.folder)
        LOCAL.mkdir(self.folder)
        target = Path(self.folder) / f"{name}.gz"
        if not target.exists():
            install(path, target, self._pack)
        if _digest_of_packed(target) != digest(path):
            raise FileExistsError(f"{target} exists and differs from {path}")
        make_durable(target)
        Path(path).unlink()

    def _pack(self, source: str, target: Path) -> None:
        # no name and no time in the packed file: the same log file gives the same bytes
        with (
            open(source, "rb") as plain,
            write_anew(target) as raw,
            gzip.GzipFile("", "wb", self.level, raw, mtime=0) as packed,
        ):
            shutil.copyfileobj(plain, packed, _PIECE)


def require_away(path: str, folder: str) -> None:
    """Require that a file is not in the folder already that it goes to.

    It would be taken for the copy of itself there, and deleted.

    Raises:
        FileExistsError: it is.
    """
    if os.path.realpath(posixpath.dirname(absolute(path))) == os.path.realpath(folder):
        raise FileExistsError(f"{path} is in {folder} already: dispose of it elsewhere")


def install(source: str, target: Path, write: Callable[[str, Path], None]) -> None:
    """Write ``target`` under a temporary name, sync it, then rename it."""
    fresh = target.with_name(f".{target.name}.part")
    write(source, fresh)
    _sync(fresh)
    fresh.replace(target)


def make_durable(target: Path) -> None:
    """Sync a file and its name.

    Also needed for a target that was there already: a killed run may have made it without a sync,
    and the source is about to be deleted.
    """
    _sync(target)
    LOCAL.sync_dir(str(target.parent))


def _copy(source: str, target: Path) -> None:
    with open(source, "rb") as plain, write_anew(target) as raw:
        shutil.copyfileobj(plain, raw, _PIECE)


def _sync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def digest(path: str) -> str:
    """Return the SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return _digest(file.read)


def _digest_of_packed(path: Path) -> str:
    with gzip.open(path) as file:
        return _digest(file.read)


def _digest(read: Callable[[int], bytes]) -> str:
    total = sha256()
    while piece := read(_PIECE):
        total.update(piece)
    return total.hexdigest()
