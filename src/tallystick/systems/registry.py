"""The registered systems, and their logs by role.

In: the name of a system, or a role. Out: the `System` with its capabilities, or an open log of the
type that `tallystick.roles` names for the role. Code of a system is imported when it is used.
"""

from __future__ import annotations

import os
from pkgutil import resolve_name
from typing import Any, cast

from tallystick.errors import UnsupportedFormatError
from tallystick.roles import (
    DecisionLog,
    JournalEngine,
    PagedLog,
    PersistLog,
    RecordJournal,
    Role,
    SharedDecisionLog,
    UndoRedoLog,
)
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.known import NATIVE as NATIVE
from tallystick.systems.known import packages
from tallystick.systems.known import system as system
from tallystick.systems.known import systems as systems
from tallystick.systems.protocol import ResourceTraits

Path = str | os.PathLike[str]


def resource_traits(name: str) -> ResourceTraits:
    """Return what logs of that system tell of branches; the defaults for an unknown name."""
    return system(name).resource if name in packages() else ResourceTraits()


def systems_with(role: Role) -> tuple[str, ...]:
    """Return the names of the systems whose logs can play ``role``."""
    return tuple(one.name for one in systems() if role in one.roles)


def role_class(role: Role, name: str) -> Any:
    """Return the class of that system that plays ``role``.

    Raises:
        UnsupportedFormatError: the system has no such role, or is not registered.
    """
    entry = system(name) if name in packages() else None
    if entry is None or role not in entry.roles:
        raise UnsupportedFormatError(
            f"{name} is no {role.value}", expected=f"one of {', '.join(systems_with(role))}"
        )
    return resolve_name(entry.roles[role])


def open_decision_log(
    path: Path, name: str = NATIVE, fs: FileSystem = LOCAL, *, owner: str = ""
) -> DecisionLog:
    """Open or create a coordinator's log. Raises what opening that log raises."""
    return cast(DecisionLog, _open(Role.DECISION_LOG, name, path, fs, owner=owner))


def open_shared_decision_log(
    path: Path, name: str = NATIVE, *, owner: str = ""
) -> SharedDecisionLog:
    """Open or create a coordinator's log that other processes open, too.

    Raises what opening that log raises.
    """
    made = resolve_name(system(name).shared[Role.DECISION_LOG])
    return cast(SharedDecisionLog, made(os.fspath(path), owner=owner))


def open_record_journal(path: Path, name: str = NATIVE, fs: FileSystem = LOCAL) -> RecordJournal:
    """Open or create a journal of records. Raises what opening that log raises."""
    return cast(RecordJournal, _open(Role.RECORD_JOURNAL, name, path, fs))


def open_journal_engine(path: Path, name: str = NATIVE, **options: Any) -> JournalEngine:
    """Open or create a journal with replay and followers. Raises what opening that log raises."""
    made = role_class(Role.JOURNAL, name)
    return cast(JournalEngine, made(os.fspath(path), **options))


def open_undo_redo_log(
    path: Path, name: str = NATIVE, fs: FileSystem = LOCAL, *, page_size: int = 4096,
    owner: str = "",
) -> UndoRedoLog:  # fmt: skip
    """Open or create an undo/redo log for pages of ``page_size`` bytes.

    Raises what opening that log raises.
    """
    options = {"page_size": page_size, "owner": owner}
    return cast(UndoRedoLog, _open(Role.UNDO_REDO_LOG, name, path, fs, **options))


def paged_system_in(path: Path, fs: FileSystem = LOCAL) -> str | None:
    """Return the system whose log stands, with its pages, in this folder of a page store."""
    for name in systems_with(Role.PAGED_LOG):
        if fs.exists(paged_file(name, path)):
            return name
    return None


def paged_file(name: str, path: Path) -> str:
    """Return the path of the file with log and pages in the folder of a page store."""
    return f"{os.fspath(path)}/{system(name).log_file}"


def open_paged_log(name: str, path: Path, fs: FileSystem = LOCAL) -> PagedLog:
    """Open or create an undo/redo log that keeps its pages. Raises what opening it raises."""
    return cast(PagedLog, _open(Role.PAGED_LOG, name, paged_file(name, path), fs))


def open_persist_log(
    path: Path, name: str = NATIVE, fs: FileSystem = LOCAL, *, owner: str = ""
) -> PersistLog:
    """Open or create a persist log. Raises what opening that log raises."""
    return cast(PersistLog, _open(Role.PERSIST_LOG, name, path, fs, owner=owner))


def _open(role: Role, name: str, path: Path, fs: FileSystem, **more: Any) -> Any:
    made = role_class(role, name)
    taken = system(name).role_options.get(role, frozenset())
    return made(os.fspath(path), fs=fs, **{key: more[key] for key in more if key in taken})
