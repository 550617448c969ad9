"""What is said of paths, logs and files that hold nothing to read, or cannot be read.

In: paths without logs, errors, logs that lack what is asked for. Out: findings.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

from tallystick.errors import LogBeingWrittenError, LogUnreadableError, TallystickError
from tallystick.printable import shell_quoted
from tallystick.reading.discovery import PATH_UNREAD, other_text, parent
from tallystick.reading.names import log_name
from tallystick.records import Finding, Severity
from tallystick.roles.page_store_files import BACKUP_MARK, BACKUP_TEXT, PAGES
from tallystick.storage.source import archive_name, logical_name, read_head
from tallystick.systems.findings import BEING_WRITTEN
from tallystick.systems.protocol import LogSource, System

NO_LOG = "no-log"
"""Code of the finding that a path holds no log at all."""
_NAMED_MAX = 6
"""Files that are no log: how many of them a message names."""
_LOOKED_AT = 64 << 10
"""Bytes of each that are looked at."""


def why_not_followed(source: LogSource, of: System) -> str:
    """Return why a log cannot be read on as it grows; empty where it can be."""
    if not source.followable:
        return (
            "each transaction is a file that is deleted at its end, and so comes and goes between "
            "two looks"
        )
    if not of.followable:
        return (
            "its pages are given back at each checkpoint and written over at once, so records come "
            "and go between two looks"
        )
    return ""


def unread_path(path: str, error: LogUnreadableError) -> Finding:
    """Return the finding for one of several paths that cannot be read."""
    return Finding(
        PATH_UNREAD, Severity.DAMAGE, "", path, error.message, file=error.file, advice=error.advice
    )


def error_finding(source: LogSource, error: TallystickError | OSError) -> Finding:
    """Return the finding for a log whose reading stopped with ``error``."""
    code = "unreadable" if isinstance(error, LogUnreadableError | OSError) else "not-read"
    written = isinstance(error, LogBeingWrittenError)
    known = error if isinstance(error, TallystickError) else TallystickError(str(error))
    return Finding(
        BEING_WRITTEN.code if written else code,
        Severity.WARNING if written else Severity.DAMAGE,
        source.system,
        log_name(source),
        f"reading stopped: {error}",
        file=known.file or next(iter(source.files), None),
        offset=known.offset,
        expected=known.expected,
        found=known.found,
        advice=known.advice,
    )


NO_TIMES = "no-times"


def no_times(source: LogSource) -> Finding:
    """Return the finding for a log without times of day, where these are asked for."""
    return Finding(
        NO_TIMES, Severity.WARNING, source.system, log_name(source),
        "The log holds no times of day: nothing of it lies between two times.",
        advice="Leave out --since and --until, or ask for a transaction or a key",
    )  # fmt: skip


NO_LSNS = "no-lsns"
UNNUMBERED_ADVICE = "Leave out --from-lsn and --to-lsn, or ask for a transaction or a key"


def no_numbers(source: LogSource) -> Finding:
    """Return the finding for a log without LSNs, where these are asked for."""
    return Finding(
        NO_LSNS, Severity.INFO, source.system, log_name(source),
        "The records of the log have no LSNs: nothing of it lies between two of them.",
        advice=UNNUMBERED_ADVICE,
    )  # fmt: skip


def no_log(path: str, others: list[str]) -> Finding:
    """Return the finding for a path below which there are no logs, but ``others``."""
    text = f"there is no log of any known system below {path}"
    advice = "Point at the folder that holds the log files, or at a tree above it"
    store = next((parent(one) for one in others if _is_backup_mark(one, others)), None)
    if store is not None:
        text = f"{store} is a backup of a page store: whole pages, and no log yet"
        advice = f"tallystick store check {shell_quoted(store)} begins its log and checks each page"
    return Finding(
        NO_LOG,
        Severity.WARNING,
        "",
        path,
        text,
        file=path,
        expected="files of a known log system",
        found=_others_text(others),
        advice=advice,
    )


def _is_backup_mark(path: str, others: Container[str]) -> bool:
    """Return whether a file marks the pages beside it as a finished backup of a page store."""
    folder, _, name = path.rpartition("/")
    if name != BACKUP_MARK or f"{folder}/{PAGES}" not in others:
        return False
    try:
        return read_head(path, len(BACKUP_TEXT)) == BACKUP_TEXT
    except LogUnreadableError:
        return False


def _others_text(others: list[str]) -> str:
    """Return how many files there are that are no log, and what the first of them hold."""
    if not others:
        return "no file"
    named = ", ".join(f"{logical_name(one)} ({_content_text(one)})" for one in others[:_NAMED_MAX])
    more = f" and {len(others) - _NAMED_MAX} more" if len(others) > _NAMED_MAX else ""
    return f"{len(others)} other file{'s' if len(others) != 1 else ''}: {named}{more}"


def _content_text(path: str) -> str:
    """Return what a file holds that is no log, as far as its beginning tells."""
    try:
        head = read_head(path, _LOOKED_AT)
    except LogUnreadableError as error:
        return error.message
    if not head:
        return "empty"
    if kind := archive_name(head):
        return f"{kind}: unpack it first"
    if any(head):
        return other_text(path, head) or "content of no known log"
    return "only zeros" if len(head) < _LOOKED_AT else f"zeros in its first {_LOOKED_AT} bytes"


class _HasProblems(Protocol):
    problems: list[Finding]


def deliver(found: _HasProblems, problems: list[Finding] | None) -> None:
    """Append what could not be read to ``problems``; without such a list raise the first one."""
    unread = [one for one in found.problems if one.severity is not Severity.INFO]
    if problems is not None:
        problems.extend(found.problems)
    elif unread:
        first = unread[0]
        raise LogUnreadableError(
            first.message,
            file=first.file,
            offset=first.offset,
            expected=first.expected,
            found=first.found,
            advice=first.advice,
        )
