"""Logs of one system made into logs of another that plays the same role.

In: one closed log, read only. Out: a new log with everything that still matters: open
decisions and heuristic outcomes, live records and prepared transactions, pending entries. What
is over, and what the other format cannot say, is counted in the report, never dropped silently.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tallystick.convert.roles import (
    ELEMENTS,
    ConversionReport,
    convert_decisions,
    convert_entries,
    convert_journal,
)
from tallystick.errors import CorruptLogError, LogWriteError, NotALogError, UnsupportedFormatError
from tallystick.reading.survey import survey
from tallystick.records import Kind, Severity
from tallystick.roles import Role
from tallystick.storage.local import made_whole
from tallystick.systems.protocol import LogReading, ReadOptions
from tallystick.systems.registry import systems_with

CONVERTIBLE = (Role.DECISION_LOG, Role.RECORD_JOURNAL, Role.PERSIST_LOG)
"""The roles whose logs can be converted."""

__all__ = ["CONVERTIBLE", "ConversionReport", "convert"]


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: str,
    *,
    force: bool = False,
    options: ReadOptions | None = None,
) -> ConversionReport:
    """Make the log at ``source`` into a new one of the system ``to`` in the folder ``target``.

    The folder gets its name when the log is whole and durable. A conversion that was killed
    leaves an unfinished folder, with ``.converting`` after the name.

    Raises `NotALogError` if there is not exactly one log, `CorruptLogError` if it is damaged
    (``force`` takes what can be believed), `UnsupportedFormatError` if the systems share no
    role, and `LogWriteError` if the target is not empty, or an unfinished one stands beside it.
    """
    reading = _only_log(os.fspath(source), options)
    _require_sound(reading, force=force)
    role = _role_of(reading)
    able = systems_with(role)
    if to not in able:
        raise UnsupportedFormatError(
            f"a {reading.source.system} log is a {role.value}, and {to} is none",
            expected=f"one of {', '.join(able)}",
        )
    folder = Path(target)
    if folder.exists() and any(folder.iterdir()):
        raise LogWriteError("the target is not empty", file=str(folder))
    report = ConversionReport(
        reading.source.path, reading.source.system, str(folder), to, role.value
    )
    _make(role, reading, folder, report)
    return report


def _make(role: Role, reading: LogReading, folder: Path, report: ConversionReport) -> None:
    """Make the new log under another name, then rename it."""
    with made_whole(folder.absolute()) as unfinished:
        _CONVERTERS[role](reading, str(unfinished), report.target_system, report)


def _only_log(path: str, options: ReadOptions | None) -> LogReading:
    found = survey(path, options=options).refuse_unknown_settings()
    if len(found.logs) != 1:
        raise NotALogError(
            f"{len(found.logs)} logs here", file=path, expected="one", advice="Name its folder"
        )
    return found.read(found.logs[0])


def _require_sound(reading: LogReading, *, force: bool) -> None:
    bad = [one for one in reading.findings() if one.severity in (Severity.DAMAGE, Severity.LOSS)]
    if bad and not force:
        raise CorruptLogError(
            f"the log is not sound: {bad[0].message}",
            file=bad[0].file,
            offset=bad[0].offset,
            advice="See 'tallystick explain'; with force what can be believed is converted",
        )


def _role_of(reading: LogReading) -> Role:
    """Return the role of the system, or of several the one that the records belong to."""
    system = reading.source.system
    roles = [role for role in _CONVERTERS if system in systems_with(role)]
    if len(roles) == 1:
        return roles[0]
    if not roles:
        raise UnsupportedFormatError(
            f"a {system} log means something only beside its pages: it has no counterpart"
        )
    for record in reading.records():
        if record.kind in (Kind.DECISION, Kind.STATUS, Kind.HEURISTIC):
            return Role.DECISION_LOG
        if record.kind in (Kind.PERSISTING, Kind.PERSISTED):
            return Role.PERSIST_LOG
        if record.kind is Kind.UNDO:
            raise UnsupportedFormatError("an undo/redo log means something only beside its pages")
        if record.kind in (*ELEMENTS, Kind.PREPARE):
            return Role.RECORD_JOURNAL
    return Role.RECORD_JOURNAL


_CONVERTERS: dict[Role, Callable[[LogReading, str, str, ConversionReport], None]] = {
    Role.DECISION_LOG: convert_decisions,
    Role.RECORD_JOURNAL: convert_journal,
    Role.PERSIST_LOG: convert_entries,
}
