"""The directory of a write-behind service: its log and its identity.

In: a path, and the system of the log. Out: an open `PersistLog`, and an id by which targets know
the log. The identity file holds the id and the system, a line each; it is written once and never
changed. A file with an id alone is from an early release, and is valid for any system.

The id is the log's own identity if it has one: then the loss or exchange of the file, of the log,
or of the numbers that a target keeps is noticed. For other logs it is a random UUID, with dashes.
"""

from __future__ import annotations

import posixpath
import uuid

from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.roles import PersistLog
from tallystick.storage.files import FileSystem, read_file, write_whole
from tallystick.systems.folders import is_vacant, logs_in, require_no_other
from tallystick.systems.registry import open_persist_log, systems

LOG_FOLDER = "log"
IDENTITY_FILE = "identity"
TARGETS_FILE = "targets"
"""What is known of the targets, as JSON; see `Contacts`."""
REFUSED_FILE = "disposal-refused"
"""Says, as JSON, what a disposer refuses, for as long as it does; see `Disposal`."""
IDENTITY_SIZE_MAX = 36


def open_log(folder: str, system: str, fs: FileSystem) -> PersistLog:
    """Open or create the log of the service.

    Raises:
        CorruptLogError: the log of an existing service is missing.
        UnsupportedFormatError: a system without a persist log, or another system than that of the
            existing log.
    """
    require_no_other(folder, fs, LOG_FOLDER)
    recorded = recorded_system(folder, fs)
    if recorded not in (None, system):
        raise UnsupportedFormatError(
            "the service has a log of another system", file=folder, expected=recorded, found=system
        )
    path = posixpath.join(folder, LOG_FOLDER)
    if lacks_log(folder, fs):
        raise CorruptLogError(
            "the log of this service is missing: transactions that targets do not hold may be lost",
            file=path,
            advice="Bring its files back (is the volume mounted, are they packed?); for a new "
            "service take a new folder",
        )
    identity, *_ = _read(folder, fs) or [""]
    return open_persist_log(path, system, fs, owner=f"service {identity}" if identity else "")


def lacks_log(folder: str, fs: FileSystem) -> bool:
    """Return whether no file is in the folder of the log of an existing service.

    A log whose files are all disposed of leaves its own notes there.
    """
    exists = fs.exists(posixpath.join(folder, IDENTITY_FILE))
    return exists and is_vacant(posixpath.join(folder, LOG_FOLDER), fs)


def holds_no_log(folder: str, fs: FileSystem) -> bool:
    """Return whether an existing service lacks its log, or no file in its folder is one."""
    path = posixpath.join(folder, LOG_FOLDER)
    if not fs.exists(posixpath.join(folder, IDENTITY_FILE)):
        return False
    return lacks_log(folder, fs) or not (gave_all_away(folder, fs) or logs_in(path, fs, systems()))


def gave_all_away(folder: str, fs: FileSystem) -> bool:
    """Return whether the log of a service has only its own notes, as all files are disposed of.

    Notes that name more than was disposed of are those of a log that is lost: it does not open.
    """
    path = posixpath.join(folder, LOG_FOLDER)
    notes = {pattern for one in systems() for pattern in one.neighbours}
    return is_vacant(path, fs, notes) and all(one.opens_by_notes(path, fs) for one in systems())


def recorded_system(folder: str, fs: FileSystem) -> str | None:
    """Return the system of the log in ``folder``, None if it is not recorded."""
    _, *more = _read(folder, fs) or [""]
    return more[0] if more else None


def identify(folder: str, fs: FileSystem, system: str | None, log: PersistLog) -> str:
    """Return the id of the service in ``folder``; write it, durably, for a new log.

    Called by the owner of the log only. ``system`` is the system of its log, if known. Raises
    `CorruptLogError` if the id is lost, or is that of another log.
    """
    path = posixpath.join(folder, IDENTITY_FILE)
    if found := _read(folder, fs):
        if "-" not in found[0] and found[0] != log.identity:
            raise _another_log(path, log.identity, found[0])
        return found[0]
    if log.last_number:
        raise _lost(path, log, system)
    return new_identity(folder, fs, system, log)


def new_identity(folder: str, fs: FileSystem, system: str | None, log: PersistLog) -> str:
    """Write the id of a new service, durably, and return it; arguments as of `identify`."""
    identity = log.identity or str(uuid.uuid4())
    lines = [identity] if system is None else [identity, system]
    content = "".join(f"{line}\n" for line in lines).encode("ascii")
    write_whole(fs, posixpath.join(folder, IDENTITY_FILE), [content])
    return identity


def _lost(path: str, log: PersistLog, system: str | None) -> CorruptLogError:
    first = f"{log.identity!r}" if log.identity else "the id that the targets know"
    return CorruptLogError(
        "the identity of the service is lost: without it targets do not know what they hold",
        file=path,
        expected=f"an id, for a log that has given the numbers up to {log.last_number}",
        found="no file",
        advice=f"Restore it, or write it: a line with {first}, one with "
        f"{system or 'the name of the system'!r}. SQL targets keep the id: "
        "SELECT DISTINCT log FROM tallystick_applied",
    )


def _another_log(path: str, expected: str | None, found: str) -> CorruptLogError:
    return CorruptLogError(
        "the identity of the service is that of another log",
        file=path,
        expected=expected or "a UUID with dashes",
        found=found,
        advice="Bring the file and the log of one service together again; for a new service "
        "take a new folder",
    )


def _read(folder: str, fs: FileSystem) -> list[str]:
    path = posixpath.join(folder, IDENTITY_FILE)
    if not fs.exists(path):
        return []
    found = read_file(fs, path).decode("ascii", "replace").split()
    if not 1 <= len(found) <= 2 or len(found[0]) > IDENTITY_SIZE_MAX:
        raise CorruptLogError(
            "the identity of the service is damaged",
            file=path,
            expected="an id, and the name of a system",
            found=f"{len(found)} words",
            advice="Restore it: without it targets do not know what they hold",
        )
    return found
