"""Recognise a log folder of Derby by the content of its files, or a database that names it.

In: the entries of one folder. Out: at most one `LogSource`. A database whose log is on another
device says so in its ``service.properties``; that place is looked at, wherever it is. One whose
log is gone has a log without files.
"""

from __future__ import annotations

import re

from tallystick.errors import LogUnreadableError
from tallystick.storage.source import is_remote, list_names, logical_name, slashed
from tallystick.systems.derby.format.layout import (
    HEADER_SIZE,
    LOG_FILE,
    OBSOLETE_VERSION,
    SEGMENT,
    SYSTEM_NAME,
    make_instant,
)
from tallystick.systems.derby.read.files import (
    LOG_FOLDER,
    PROPERTIES,
    SERVICE,
    file_number,
    log_names,
    log_on_device,
    properties_in,
)
from tallystick.systems.jdbc_urls import split_url
from tallystick.systems.protocol import Entry, Folder, LogSource, readable_entries
from tallystick.systems.surroundings import is_missing

_NOTICE = "README_DO_NOT_TOUCH_FILES.txt"
_SIGNATURE = LOG_FILE.to_bytes(4) + OBSOLETE_VERSION.to_bytes(4)

_URL = "jdbc:derby:"
_ELSEWHERE = re.compile(r"\w\w+:|//")
"""Begins what is in memory, on a server or in an archive; one letter is a drive."""


def detect(folder: Folder) -> list[LogSource]:
    """Return the folder's log, or that of the database in it where it is elsewhere, or gone.

    At least one file of a log has Derby's signature.

    Raises:
        LogUnreadableError: the folder that a database names is there, and cannot be read.
    """
    entries = list(readable_entries(folder.entries))
    if (found := _log_of_database(folder, entries)) is not None:
        return [found]
    names = set(log_names(entry.name for entry in entries))
    named = [entry for entry in entries if entry.name in names]
    if not any(_signed(entry) for entry in named):
        return []
    files = [entry.path for entry in entries if entry.name in names or entry.name == _NOTICE]
    return [LogSource(SYSTEM_NAME, folder.path, tuple(files))]


def path_in(url: str) -> str | None:
    """Return the path that a URL of JDBC names; empty if none here, None of another system."""
    if not url.lower().startswith(_URL):
        return None
    address, named = split_url(url)
    name = address[len(_URL) :]
    path = name.removeprefix("directory:") or named.get("databasename", "")
    return "" if _ELSEWHERE.match(path) else path


def password_in(url: str) -> str | None:
    """Return the boot password that a URL of JDBC gives; None without one, or of another system."""
    return split_url(url)[1].get("bootpassword") if url.lower().startswith(_URL) else None


def _log_of_database(folder: Folder, entries: list[Entry]) -> LogSource | None:
    """Return the log that a database's properties name; without files where none is there.

    None of a database whose log is in its own folder: that is found there.
    """
    found = next((one for one in entries if one.name == PROPERTIES), None)
    if found is None or is_remote(folder.path):
        return None
    properties = properties_in(found.head)
    if SERVICE not in properties:
        return None
    device = log_on_device(properties)
    path = device or slashed(f"{folder.path}/{LOG_FOLDER}")
    files = tuple(one for one in log_files_in(path) if logical_name(one) != _NOTICE)
    if device:
        return LogSource(SYSTEM_NAME, path, files, database=folder.path)
    if files or SEGMENT not in list_names(folder.path):
        return None
    return LogSource(SYSTEM_NAME, path, ())


def log_files_in(path: str) -> tuple[str, ...]:
    """Return the files of a log in a folder, with the notice beside them; none without a log.

    Raises:
        LogUnreadableError: the folder is there, and cannot be read.
    """
    names = _names_in(path)
    usual = set(log_names(map(logical_name, names)))
    beside = {_NOTICE} if usual else set[str]()
    return tuple(f"{path}/{name}" for name in names if logical_name(name) in usual | beside)


def _names_in(path: str) -> list[str]:
    """Return the names in a folder, in their order; none where it is not there."""
    try:
        return sorted(list_names(path))
    except LogUnreadableError as error:
        if not is_missing(error):
            raise
        return []


def _signed(entry: Entry) -> bool:
    """Format id and version; the engine never checks the version, so one may be damaged."""
    head = entry.head
    if len(head) < len(_SIGNATURE):
        return False
    if head.startswith(_SIGNATURE):
        return True
    number = file_number(entry.name)
    if number is None:
        return head[4:8] == _SIGNATURE[4:] and len(head) < HEADER_SIZE * 4
    first = int.from_bytes(head[28:36])
    # One damaged byte must not hide the log: its number, or the instant of its first record, is as
    # good.
    return head[8:16] == number.to_bytes(8) or first == make_instant(number, HEADER_SIZE)
