"""Files and folders that a command makes for its user: all of one, or nothing.

In: a path that the user names. Out: a new file or folder under this name when it is whole, or an
error that names the path.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tallystick.errors import LogWriteError
from tallystick.posix import O_PLAIN
from tallystick.storage.local.descriptors import FILE_MODE
from tallystick.storage.local.file_system import FOLDER_MODE, LOCAL
from tallystick.storage.signals import starts_unchecked, uninterrupted

UNFINISHED = ".converting"
"""Suffix of a converted log's folder until all of its files are there."""


def write_anew(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to be written anew, the owner's alone; an older one of the name is removed."""
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_PLAIN
    return os.fdopen(os.open(path, flags, FILE_MODE), "wb")


@contextlib.contextmanager
def naming(target: str | os.PathLike[str]) -> Iterator[None]:
    """Let errors of the system name ``target``, where they name no file or an unfinished one."""
    try:
        yield
    except OSError as error:
        if str(error.filename or target).startswith(name := os.fspath(target)):
            error.filename = name
        raise


def require_folder(target: Path, what: str) -> None:
    """Require that the folder is there in which a file or a folder is to be made."""
    if not target.parent.is_dir():
        raise LogWriteError(
            f"the folder of the {what} does not exist", file=str(target), advice="Make it first"
        )


class made_whole:  # noqa: N801 - used as a function
    """A new folder to convert a log into; at the end, durable, it gets the name ``folder``.

    It is removed if the block fails. What the block writes into files it has to sync itself.

    Args:
        folder: the target, an absolute path; nothing, or an empty folder.

    Raises:
        LogWriteError: there is something, or what makes it was cut short, or still runs.
    """

    def __init__(self, folder: Path) -> None:
        _require_free(folder)
        self._folder = folder
        self._unfinished = folder.with_name(folder.name + UNFINISHED)
        self._parents = [one for one in folder.parents if not one.exists()]
        self._made = False

    def __enter__(self) -> Path:
        try:
            with uninterrupted:
                _make(self._unfinished)
                self._made = True
        except BaseException:
            self._remove()
            raise
        return self._unfinished

    @starts_unchecked
    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        with uninterrupted:
            if error is not None:
                self._remove()
                return
            try:
                LOCAL.sync_dir(str(self._unfinished))
                self._unfinished.rename(self._folder)
            except BaseException:
                self._remove()
                raise
            LOCAL.sync_dir(str(self._folder.parent))
            for one in self._parents:
                with contextlib.suppress(PermissionError):  # to make one there, nobody has to list
                    LOCAL.sync_dir(str(one.parent))

    def _remove(self) -> None:
        if self._made:  # who makes it, removes it
            shutil.rmtree(self._unfinished, ignore_errors=True)
            with contextlib.suppress(OSError):  # somebody may have put something there
                for one in self._parents:
                    one.rmdir()


def _make(unfinished: Path) -> None:
    try:
        unfinished.mkdir(FOLDER_MODE, parents=True)
    except FileExistsError:
        raise LogWriteError(
            "what makes this target was cut short, or still runs",
            file=str(unfinished),
            advice="If nothing runs, remove this folder and type the command again",
        ) from None


def _require_free(folder: Path) -> None:
    """Require that a folder can get this name: a new one, that of an empty folder at most."""
    found, advice = "", "Choose another name"
    if folder.exists():
        if not folder.is_dir():
            found = "it is no folder"
        elif any(folder.iterdir()):
            found = "it is not empty"
        elif folder.samefile(os.curdir) or folder.is_mount():
            # A folder that is made elsewhere and renamed would take its place.
            found = "it is the current folder, or a mounted volume"
            advice = "Name a folder in it"
    if found:
        raise LogWriteError(f"the target cannot be made: {found}", file=str(folder), advice=advice)
