"""The directory of a coordinator: node, disk, owner, open decisions, names of resources."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tallystick.errors import TallystickError, UnsupportedFormatError
from tallystick.indoubt.doctor.checks import Check, Level, judged, looked_at
from tallystick.indoubt.doctor.volumes import check_volume
from tallystick.printable import counted, printable, shell_quoted
from tallystick.reading.settled import settled_judgement
from tallystick.reading.survey import survey
from tallystick.records import Answer, State, Transaction
from tallystick.refusals import reason_of
from tallystick.roles import Role
from tallystick.roles.coordinator_files import (
    DECIDES,
    IDENTITIES,
    LOG_FOLDER,
    LOST_FILE,
    NODE_FILE,
    RESOURCES,
    TextsFile,
)
from tallystick.services.transactions.coordinator_dir import (
    lost_moment,
    owning_node,
)
from tallystick.services.transactions.xids import check_node, node_of
from tallystick.storage.local import LOCAL
from tallystick.systems.folders import is_vacant, logs_in, require_role
from tallystick.systems.protocol import LogSource
from tallystick.systems.registry import system, systems

_FREE_PROBLEM = 64 << 20
"""Bytes: about what a few segments of the decision log take."""
_FREE_WARNING = 1 << 30
_FILES_PROBLEM = 64
"""Files that the file system can still make."""
_DECIDED = (State.COMMITTING, State.HEURISTIC)
_LOCKS = Path("/proc/locks")


def check_directory(path: str, resources: Collection[str]) -> Iterator[Check]:
    """Yield what is found in the directory.

    Args:
        path: the directory.
        resources: names of the resources of the manager.
    """
    folder = Path(path)
    node = folder / NODE_FILE
    if not node.is_file():
        yield _without_node(folder)
        return
    name = ""
    with suppress(OSError):  # it is told of with the other small files
        name = printable(node.read_text("ascii", "replace").strip())
    name = name or str(folder)
    yield _owner(folder, name)
    yield from _small_files(folder, name)
    yield _access(folder, name)
    yield _disk(folder, name)
    yield check_volume(folder, name)
    log = folder / LOG_FOLDER
    decisions = _decisions(folder, name, resources)
    yield from looked_at(name, "decision log", str(log), decisions)
    known = _texts(RESOURCES, path)
    for missing in sorted({*known_identities(path), *known} - set(resources)):
        left = ": renamed or left out?"
        if known.get(missing) == DECIDES:
            left = ", and may hold decisions: without it recovery leaves what it may have decided"
        yield Check(
            name, "resources", Level.WARNING,
            f"{missing!r} was a resource and was not given here{left}",
            f"tallystick doctor {shell_quoted(path)} --resource {shell_quoted(missing)}=URL",
        )  # fmt: skip


def _without_node(folder: Path) -> Check:
    if logs_of(folder / LOG_FOLDER, Role.DECISION_LOG):
        found = (
            f"the file {NODE_FILE!r} is lost: the coordinator may get another name, and not find"
        )
        return Check(
            str(folder), NODE_FILE, Level.PROBLEM, f"{found} the branches of its own",
            _write_node(folder / NODE_FILE),
        )  # fmt: skip
    return Check(
        str(folder), "directory", Level.PROBLEM, "this is not the directory of a coordinator",
        "ls -d */node  # the directory that the manager was opened with holds a file 'node'",
    )  # fmt: skip


def logs_of(folder: Path, role: Role) -> list[LogSource]:
    """Return the logs in a folder that are used for this."""
    try:
        found = logs_in(str(folder), LOCAL, systems())
        return [one for one in found if system(one.system).role_in(str(folder), LOCAL) is role]
    except (TallystickError, OSError):
        return []


def check_log(subject: str, what: str, log: Path, role: Role, decided: list[Transaction]) -> Check:
    """Return whether the service of a log can open it, and whether all of it is there.

    Args:
        subject: the service.
        what: the log, in its words.
        log: the folder of the log.
        role: what the service uses it for.
        decided: gets the decisions that are not closed, and those that were gone against.
    """
    line = f"tallystick explain {shell_quoted(str(log))}"
    try:
        require_role(str(log), LOCAL, role)
        found = survey(str(log))
    except UnsupportedFormatError as error:
        return Check(subject, what, Level.PROBLEM, f"{error.message}: {error.found}", line)
    except TallystickError as error:
        line = f"ls -la {shell_quoted(str(log))}  # {error.advice or error.message}"
        return Check(subject, what, Level.PROBLEM, error.message, line)
    judgement = None
    for reading in found.readings():
        with found.guard(reading.source):
            judgement = settled_judgement(reading, found.known, found.options)
            decided += (one for one in reading.transactions() if one.state in _DECIDED)
    good, bad = "", None
    if found.problems or judgement is None:
        bad = found.problems[0].message if found.problems else "there is no log in the folder"
    elif judgement.answer is not Answer.SAFE:
        bad = f"{judgement.words}: {judgement.text}"
    else:
        good = judgement.words.lower()
    return judged(subject, what, good, bad, line, Level.PROBLEM)


def _write_node(file: Path) -> str:
    """Return the line that writes the node id anew: as the log says, or as its decisions do."""
    folder, known = file.parent / LOG_FOLDER, set[str | None]()
    for one in logs_of(folder, Role.DECISION_LOG):
        known.add(owning_node(system(one.system).names_in(str(folder), LOCAL)[1]) or None)
    if known <= {None}:
        found = survey(str(folder))
        for reading in found.readings():
            with found.guard(reading.source):
                known |= {node_of(one.gtrid) for one in reading.transactions() if one.gtrid}
    nodes = [one for one in known if one]
    if len(nodes) == 1:
        return f"printf '%s\\n' {shlex.quote(nodes[0])} > {shell_quoted(str(file))}"
    return (
        f"printf '%s\\n' NODE > {shell_quoted(str(file))}  # NODE: as the program says, "
        "TransactionManager(..., node=NODE), or its log of messages"
    )


def _small_files(folder: Path, name: str) -> Iterator[Check]:
    """Yield a problem for each small file that the manager refuses to open with.

    They are read by the functions with which it opens them.
    """
    read: dict[str, Callable[[Path], object]] = {
        NODE_FILE: lambda path: check_node(path.read_text("ascii", "replace").strip()),
        IDENTITIES.name: lambda path: IDENTITIES.read(LOCAL, str(path.parent)),
        RESOURCES.name: lambda path: RESOURCES.read(LOCAL, str(path.parent)),
        LOST_FILE: lambda path: lost_moment(path.read_bytes(), str(path)),
    }
    for file, opened in read.items():
        path = folder / file
        at, aside = shell_quoted(str(path)), shell_quoted(f"{path}.damaged")
        try:
            if path.is_file():
                opened(path)
            continue
        except OSError as error:
            said = reason_of(error)
            line = f"ls -l {at}  # the user of the coordinator has to read it"
        except TallystickError as error:
            said, line = error.message, f"mv {at} {aside}  # {error.advice}"
            if file == NODE_FILE:
                line = _write_node(path)
        yield Check(name, file, Level.PROBLEM, f"the coordinator cannot be opened: {said}", line)


def known_identities(path: str) -> dict[str, str]:
    """Return the identities of databases that the coordinator has noted, by name."""
    return _texts(IDENTITIES, path)


def _texts(file: TextsFile, path: str) -> dict[str, str]:
    with suppress(OSError, TallystickError):  # a damaged file is told of by itself
        return file.read(LOCAL, path)
    return {}


def _owner(folder: Path, name: str) -> Check:
    owners = {pid for file in folder.rglob("*") for pid in _lockers(file)}
    named = ", ".join(_named(pid) for pid in sorted(owners))
    state = f"process {named} works with it" if owners else "no process has it"
    return Check(name, "directory", Level.OK, f"node {name!r}; {state}")


def _lockers(file: Path) -> Iterator[str]:
    """Yield the processes that hold a lock of a file, as the kernel lists them."""
    try:
        inode, text = str(file.stat().st_ino), _LOCKS.read_text()
    except OSError:
        return
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 5 and fields[5].rpartition(":")[2] == inode:
            yield fields[4]


def _named(pid: str) -> str:
    """Return a process with its program and script; further arguments may hold a password."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2]
    except OSError:  # of another container: the kernel says 0
        return f"{pid} (of another container or user)"
    words = [Path(os.fsdecode(one)).name for one in arguments if not one.startswith(b"-")]
    return f"{pid} ({' '.join(filter(None, words))})"


def _access(folder: Path, name: str) -> Check:
    here = [folder, folder / LOG_FOLDER, *(folder / LOG_FOLDER).glob("*")]
    refused = [one for one in here if one.exists() and not os.access(one, os.R_OK | os.W_OK)]
    bad = f"this user may not write {refused[0]}" if refused else None
    at = shell_quoted(str(folder))
    line = f"chown -R USER {at}  # the user that the coordinator runs as"
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        bad = "the file system is mounted read-only: no decision can be recorded"
        line = f'mount -o remount,rw "$(stat -c %m {at})"  # dmesg says why it is'
    return judged(name, "rights", "files can be written", bad, line, Level.PROBLEM)


def _disk(folder: Path, name: str) -> Check:
    free, files = shutil.disk_usage(folder).free, os.statvfs(folder)
    at = shell_quoted(str(folder))
    text, line = f"{free / (1 << 20):,.0f} MiB free", f"df -h {at}"
    level = Level.PROBLEM if free < _FREE_PROBLEM else Level.WARNING
    bad = f"{text}: without space no decision can be recorded" if free < _FREE_WARNING else None
    if files.f_files and files.f_favail < _FILES_PROBLEM:
        bad = f"{files.f_favail} more files are possible: a new segment may be refused"
        level, line = Level.PROBLEM, f"df -i {at}"
    return judged(name, "disk", text, bad, line, level)


def _decisions(folder: Path, name: str, resources: Collection[str]) -> Iterator[Check]:
    log = folder / LOG_FOLDER
    if log.is_file() or is_vacant(str(log), LOCAL):
        yield Check(
            name, "decision log", Level.PROBLEM,
            "the decisions are missing: the coordinator refuses to open, unless the program gives "
            "it a log of another system",
            f"ls -la {shell_quoted(str(log))}  # is its volume mounted?",
        )  # fmt: skip
        return
    decided, unknown = list[Transaction](), set[str]()
    check = check_log(name, "decision log", log, Role.DECISION_LOG, decided)
    heuristic = sum(one.state is State.HEURISTIC for one in decided)
    for one in decided:
        unknown |= set(one.open_participants or one.participants) - set(resources)
    if check.level is Level.OK:
        standing = counted(len(decided) - heuristic, "decision")
        check = replace(check, found=f"{check.found}; {standing} not closed")
    yield check
    if heuristic:
        yield Check(
            name, "heuristic", Level.PROBLEM,
            f"{counted(heuristic, 'outcome')} against a decision",
            f"tallystick indoubt list {shell_quoted(str(folder))}",
        )  # fmt: skip
    for resource in sorted(unknown):
        yield Check(
            name, "resources", Level.PROBLEM,
            f"a decision waits for {resource!r}, which is no resource here: renamed or forgotten",
            f"give the manager the database under its old name: {resource}=URL",
        )  # fmt: skip
