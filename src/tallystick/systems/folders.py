"""Which logs a folder holds, found before another one is begun beside them.

In: the folder where a log is to be opened, through any `FileSystem`. Out: nothing, or the error
that names what is there and how to open it; nothing is written. The content of the files decides,
as for readers. Every live log asks `require_own` before it makes or locks anything, every service
`require_no_other` before it opens its log.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tallystick.errors import LogUnreadableError, UnsupportedFormatError
from tallystick.printable import shell_quoted
from tallystick.roles import Role
from tallystick.storage.files import FileSystem, read_source
from tallystick.storage.shared.members import PREFIX as SHARED
from tallystick.storage.source import PACKINGS, ByteSource
from tallystick.systems.known import NATIVE, system, systems
from tallystick.systems.protocol import HEAD_SIZE, Entry, Folder, LogSource, System

SERVICE_FOLDERS: Final = ("log", "decisions")
"""The folders, in that of a service, in which services keep their logs."""

CALLS: Final = {
    Role.JOURNAL: ("", "Journal({path!r}{system})"),
    Role.RECORD_JOURNAL: ("", "Journal({path!r}{system})"),
    Role.PAGED_LOG: ("", "PageStore({path!r}{system})"),
    Role.UNDO_REDO_LOG: ("log", "PageStore({path!r}{system})"),
    Role.PERSIST_LOG: ("log", "WriteBehind({path!r}, targets{system})"),
    Role.DECISION_LOG: ("decisions", "TransactionManager({path!r}, resources{system})"),
}
"""For each role the folder in which its service keeps the log, and the call that opens it."""


def how_to_open(name: str, path: str, role: Role | None) -> str:
    """Return the sentence that says how to open the log of a system.

    Args:
        name: the system.
        path: the folder of the log.
        role: what the log is used for; None if nothing can open it to write.
    """
    if role is None:
        return f"Look at it with: tallystick explain {shell_quoted(path)}"
    inner, call = CALLS[role]
    service, folder = posixpath.split(path) if inner else (path, "")
    if role is Role.DECISION_LOG and name != NATIVE:
        log = f"open_decision_log({path!r}, {name!r})"
        at = repr(service) if folder == inner else "FOLDER"
        return f"Open it with: TransactionManager({at}, resources, log={log})"
    moved = ""
    if folder != inner:
        service = path
        at, new, there = map(shell_quoted, (path, f"{path}.new", posixpath.join(path, inner)))
        moved = f"mv {at} {new} && mkdir {at} && mv {new} {there}"
    system = "" if name == NATIVE else f", system={name!r}"
    line = f"open it with: {call.format(path=service, system=system)}"
    return f"Move it to where it is looked for ({moved}), and {line}" if moved else f"O{line[1:]}"


@dataclass(frozen=True, slots=True)
class _Stored(Entry):
    """A file of a `FileSystem`."""

    fs: FileSystem | None = None

    @property
    def head(self) -> bytes:
        """The first `HEAD_SIZE` bytes; none of a folder or of what cannot be read."""
        if "head" not in self._heads:
            assert self.fs is not None
            self._heads["head"] = b""
            with (
                contextlib.suppress(OSError),
                contextlib.closing(self.fs.open(self.path, write=False)) as file,
            ):
                self._heads["head"] = file.pread(HEAD_SIZE, 0)
        return self._heads["head"]

    def open(self) -> ByteSource:
        """Open all of its bytes."""
        assert self.fs is not None
        return read_source(self.fs, self.path)


def logs_in(path: str, fs: FileSystem, known: Sequence[System]) -> list[LogSource]:
    """Return the logs that a folder itself holds, of the first of ``known`` that recognises them.

    A file that cannot be read tells by its name only: what opens it says more.
    """
    beside = {name for one in known if one.name == NATIVE for name in one.companions}
    rest: Sequence[Entry] = [
        _Stored(posixpath.join(path, name), 0, fs=fs)
        for name in fs.list(path)
        if name not in beside and not name.startswith(SHARED)
    ]
    found: list[LogSource] = []
    for one in known:
        # A name without a suffix tells nothing; most are folders. What is left seldom is anything,
        # and the code that recognises the systems takes time to load.
        rest = [one for one in rest if "." in one.name or one.head]
        if not rest:
            break
        try:
            logs = one.detect(Folder(path, tuple(rest)))
        except LogUnreadableError:
            continue
        found += logs
        claimed = {file for log in logs for file in log.files}
        rest = [entry for entry in rest if entry.path not in claimed]
    return found


def is_vacant(path: str, fs: FileSystem, beside: Collection[str] = ("*.lock",)) -> bool:
    """Return whether a folder holds no file with which a log can be opened.

    A volume has names of its own (``lost+found``, ``.snapshot``), and what was packed, or locked
    only, is no log either: whoever opened one there would begin it anew.

    Args:
        path: the folder, which need not exist.
        fs: the file system.
        beside: patterns of the names of files that are none of a log.
    """
    return not any(
        "." in name[1:]
        and not name.startswith(SHARED)
        and not name.endswith(PACKINGS)
        and not any(fnmatchcase(name, one) for one in beside)
        for name in fs.list(path)
    )


def require_own(path: str, fs: FileSystem, own: str, files: str | None = None) -> None:
    """Require that a folder holds no log but the one that is opened there; nothing is written.

    Args:
        path: the folder, which need not exist.
        fs: the file system.
        own: the system of the log that is opened.
        files: the pattern that the names of its files match; None where the user has chosen the
            names: a folder may then hold several logs of the system.

    Raises:
        UnsupportedFormatError: it holds a log of another system, or one of files of other names.
    """
    others = [one for one in systems() if one.name != own]
    found = logs_in(path, fs, (system(own), *others))
    for log in found:
        if log.system != own:
            raise _held(path, fs, system(log.system), f"a log of {own}, or nothing")
    names = [posixpath.basename(file) for log in found for file in log.files]
    # A file that is made whole has a suffix more until then.
    usual = () if files is None else (files, f"{files}.*")
    if names and usual and not any(fnmatchcase(name, one) for name in names for one in usual):
        raise UnsupportedFormatError(
            "this folder holds a log whose files have other names",
            file=path,
            expected=files,
            found=", ".join(names[:3]),
            advice="Nothing was changed. Open it with the settings that name its files",
        )


def require_no_other(path: str | os.PathLike[str], fs: FileSystem, looks_in: str) -> None:
    """Require that a service's folder holds no log elsewhere than where the service looks.

    Args:
        path: the folder of the service.
        fs: the file system.
        looks_in: the folder in it where its log is, one of `SERVICE_FOLDERS`; empty: itself.

    Raises:
        UnsupportedFormatError: it does; the error says how to open it.
    """
    path = os.fspath(path)
    for folder in ("", *SERVICE_FOLDERS):
        if folder == looks_in:
            continue
        place = posixpath.join(path, folder) if folder else path
        for log in logs_in(place, fs, systems()):
            expected = f"a log in {posixpath.join(path, looks_in)}, or nothing"
            raise _held(place, fs, system(log.system), expected)


def require_role(path: str, fs: FileSystem, role: Role) -> None:
    """Require that a folder holds no log that says it has another role.

    Raises:
        UnsupportedFormatError: it does; the error says how to open it.
    """
    for log in logs_in(path, fs, systems()):
        other = system(log.system)
        if other.role_in(path, fs) not in (None, role):
            raise _held(path, fs, other, f"{role.value}, or nothing")


def _held(path: str, fs: FileSystem, other: System, expected: str) -> UnsupportedFormatError:
    role = other.role_in(path, fs)
    return UnsupportedFormatError(
        "this folder holds another log",
        file=path,
        expected=expected,
        found=f"{role.value if role else 'a log'} of {other.title}",
        advice=f"Nothing was changed. {how_to_open(other.name, path, role)}",
    )
