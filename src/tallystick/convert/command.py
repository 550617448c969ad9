"""Logs of one system made into logs of another that plays the same role.

In: one closed log, which is locked and only read. Out: a new log with everything that still
matters: open decisions and heuristic outcomes, live records, plain records and prepared
transactions, pending entries. The source's own code opens a copy of it and says what it holds. The
new log is opened as its system opens it, and compared, before it gets its name. What is over is
counted; what the other format cannot say is counted and named.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tallystick.arguments import secret
from tallystick.convert.roles import CARRIERS, ConversionReport, Holdings, differences
from tallystick.convert.service_folder import complete, log_folder
from tallystick.convert.source import copy_log, locked
from tallystick.errors import (
    CorruptLogError,
    LogWriteError,
    NotALogError,
    TallystickError,
    TransactionUsageError,
    UnsupportedFormatError,
)
from tallystick.reading.survey import survey
from tallystick.records import Finding, Severity, State
from tallystick.roles import Role
from tallystick.storage.local import LOCAL, made_whole
from tallystick.storage.opening import require_apart, writing_backup
from tallystick.storage.source import is_remote
from tallystick.systems.folders import how_to_open
from tallystick.systems.protocol import LogReading, ReadOptions
from tallystick.systems.registry import system, systems_with

CONVERTIBLE = tuple(CARRIERS)
"""The roles whose logs can be converted."""
_COPY = ".source"
"""The folder of the copy of the source, in the unfinished target."""
_CARRIED_STATES = (State.COMMITTING, State.PREPARED, State.PENDING, State.HEURISTIC)

__all__ = ["CONVERTIBLE", "ConversionReport", "convert"]


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: str,
    *,
    force: bool = False,
    options: ReadOptions | None = None,
    key_to: bytes | None = None,
    service: bool = False,
    node: str | None = None,
) -> ConversionReport:
    """Make the log at ``source`` into a new one of the system ``to`` in the folder ``target``.

    The folder gets its name when the log is whole, durable and compared. A conversion that was
    killed leaves an unfinished folder, with ``.converting`` after the name.

    Args:
        source: the log; nobody may have it open.
        target: the folder of the new log, absent or empty.
        to: the system of the new log.
        force: take what can be believed of a damaged log, and name what is damaged.
        options: how to read the source, with its key.
        key_to: seals the new log; for systems that encrypt.
        service: make ``target`` the folder of the service that opens such a log, with what the
            service of the source keeps beside its log.
        node: the node id of a coordinator, with ``service``; by default the one that the source
            tells.

    Returns:
        What was carried over, what is over, and what has no counterpart.

    Raises:
        NotALogError: there is not exactly one log.
        LogLockedError: it is open.
        CorruptLogError: it is damaged.
        UnsupportedFormatError: the systems share no role, or a key is missing, wrong or can be
            none.
        LogWriteError: the target is not empty, is inside the source, does not hold the same as the
            source, or an unfinished one stands beside it.
        TransactionUsageError: the node of a coordinator is not told, or is another one.
    """
    if node is not None and not service:
        raise TransactionUsageError(
            "a node is that of a service's folder", advice="Ask for one (--service)"
        )
    options = options or ReadOptions()
    _require_keys(options.encryption_key, key_to)
    reading = _only_log(os.fspath(source), options)
    folder = _target(target, os.fspath(source), reading.source.path)
    _require_role(reading)
    _require_sealing(to, key_to)
    with locked(reading.source.path):
        reading = _only_log(os.fspath(source), options)  # before, somebody may have written it
        damage = _require_sound(reading, force=force)
        written = writing_backup(str(target), "new log", "Nothing was made; convert it again")
        with written, made_whole(folder) as unfinished:
            copy = unfinished / _COPY
            try:
                copy_log(reading, copy)
                role = _role_of(reading, str(copy), to, options)
                report = ConversionReport(
                    reading.source.path, reading.source.system, str(target), to, role.value
                )
                with _named_as(str(unfinished), str(target)):
                    at = log_folder(unfinished, role) if service else unfinished
                    _make(role, reading, copy, at, report, options, key_to, force=force)
                    if service:
                        complete(unfinished, reading, report, key_to, node)
                _account(reading, damage, report)
            finally:
                for one in unfinished.glob(f"{_COPY}*"):
                    shutil.rmtree(one, ignore_errors=True)
    if options.encryption_key is not None and key_to is None:
        report.notes.append(
            "the new log is in clear text, also what the source had encrypted: --encryption-key-to "
            "encrypts it"
        )
    place = log_folder(Path(target), role)
    report.next = (
        how_to_open(to, str(place), role)
        if service or place == Path(target)
        else f"Open it with: open_{role.value.replace(' ', '_')}({str(target)!r}, {to!r}); the "
        "folder that a service opens is made by tallystick convert --service"
    )
    return report


def _make(
    role: Role, reading: LogReading, copy: Path, folder: Path, report: ConversionReport,
    options: ReadOptions, key_to: bytes | None, *, force: bool,
) -> None:  # fmt: skip
    """Make the new log, and compare it with the source, both open as their systems open them."""
    carry, held = CARRIERS[role]
    kept: Holdings = {}
    to = system(report.target_system)
    with _named_as(str(copy), reading.source.path):
        opened = system(reading.source.system).reopen(
            str(copy), role, reading, options.encryption_key, force=force
        )
    try:
        log = to.reopen(str(folder), role, None, key_to, opened)
        try:
            carry(opened, log, report, kept)
        finally:
            log.close()
    finally:
        opened.close()
    log = to.reopen(str(folder), role, None, key_to)
    try:
        wrong = list(differences(kept, held(log)))
    finally:
        log.close()
    if wrong:
        raise LogWriteError(
            "the new log does not hold what the source holds: " + "; ".join(wrong),
            file=report.target,
            advice="Nothing was made. Please report it; tallystick export writes the records out",
        )


@contextlib.contextmanager
def _named_as(folder: str, name: str) -> Iterator[None]:
    """Let errors name the files by the folder that is known outside, not by a passing one."""
    try:
        yield
    except TallystickError as error:
        error.file = error.file and error.file.replace(folder, name)
        raise


def _account(reading: LogReading, damage: list[Finding], report: ConversionReport) -> None:
    """Count the transactions that are over, and name what the source has lost."""
    of = system(reading.source.system)
    codes = of.code_table
    if of.reason_table[reading.judgement.reason].archive:
        report.notes.append(
            "these are archived segments: what is open in them may have ended in later ones"
        )
    for finding in damage:
        if codes[finding.code].whole:
            report.notes.append(f"damage in the source: {finding.message}")
        else:
            report.leave("damaged pieces of the source", f"{finding.file}: {finding.message}")
    # A store of files has open transactions, and nothing opens it to carry them.
    unopened = not report.carried and not report.left
    for one in reading.transactions():
        if one.state is State.INCOMPLETE:
            report.leave("transactions with holes", str(one.transaction or one.gtrid))
        elif one.state in _CARRIED_STATES and unopened:
            report.leave("transactions that nothing opens", str(one.transaction or one.gtrid))
        elif one.state not in _CARRIED_STATES:
            report.over[f"transactions {one.state.value.replace('_', ' ')}"] += 1


def _only_log(path: str, options: ReadOptions) -> LogReading:
    found = survey(path, options=options).refuse_unknown_settings()
    if len(found.logs) != 1:
        raise NotALogError(
            f"{len(found.logs)} logs here", file=path, expected="one", advice="Name its folder"
        )
    return found.read(found.logs[0])


def _target(target: str | os.PathLike[str], *apart: str) -> Path:
    """Return the new folder by its real path, whatever links and dots lead there."""
    if Path(target).is_symlink():
        raise LogWriteError(
            "the target is a symbolic link", file=str(target), advice="Name the folder itself"
        )
    require_apart(os.fspath(target), *(one for one in apart if not is_remote(one)))
    return Path(os.path.realpath(target))


def _require_sound(reading: LogReading, *, force: bool) -> list[Finding]:
    """Return what is damaged: by ``force`` what remains of it is converted all the same.

    Without the key nothing of it would remain, and that would look like an empty log.
    """
    found, codes = list(reading.findings()), system(reading.source.system).code_table
    for one in found:
        if codes[one.code].sealed:
            raise UnsupportedFormatError(
                one.message,
                file=one.file or reading.source.path,
                offset=one.offset,
                advice=one.advice,
            )
    bad = [one for one in found if one.severity in (Severity.DAMAGE, Severity.LOSS)]
    if bad and not force:
        raise CorruptLogError(
            f"the log is not sound: {bad[0].message}",
            file=bad[0].file,
            offset=bad[0].offset,
            advice="See 'tallystick explain'; force (--force) converts what can be believed",
        )
    return bad


def _require_keys(*keys: bytes | None) -> None:
    for key in keys:
        try:
            if key is not None:
                secret(key, "a key")
        except (TypeError, ValueError) as error:
            raise UnsupportedFormatError(str(error)) from error


def _require_sealing(to: str, key: bytes | None) -> None:
    if key is not None and "encryption_key" not in system(to).secrets:
        raise UnsupportedFormatError(
            f"logs of {to} are not encrypted", advice="Leave out the key of the new log"
        )


def _require_role(reading: LogReading) -> None:
    name = reading.source.system
    if not any(name in systems_with(role) for role in CARRIERS):
        raise UnsupportedFormatError(
            f"a {name} log means something only beside its pages: it has no counterpart",
            file=reading.source.path,
        )


def _role_of(reading: LogReading, copy: str, to: str, options: ReadOptions) -> Role:
    """Return the role of the log, which the new system must have, too."""
    name = reading.source.system
    role = system(name).role_in(copy, LOCAL, options.encryption_key)
    role = Role.RECORD_JOURNAL if role is Role.JOURNAL else role
    if role is not None and role not in CARRIERS:
        raise UnsupportedFormatError(
            f"an {role.value} means something only beside its pages: it has no counterpart",
            file=reading.source.path,
        )
    if role is None:  # nothing tells: the log is empty, or its opening refuses it without a key
        shared = [one for one in CARRIERS if {name, to} <= {*systems_with(one)}]
        role = shared[0] if shared else next(one for one in CARRIERS if name in systems_with(one))
    able = systems_with(role)
    if to not in able:
        raise UnsupportedFormatError(
            f"a {name} log is a {role.value}, and {to} is none",
            file=reading.source.path,
            expected=f"one of {', '.join(able)}",
        )
    return role
