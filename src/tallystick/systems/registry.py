"""The registered systems, and their logs by role.

In: the name of a system, or a role. Out: the `System` with its capabilities, or an open log of the
type that `tallystick.roles` names for the role. Code of a system is imported when it is used.

A seventh system is one folder below `tallystick.systems` and one line in `PACKAGES`; a system of
another distribution is an entry point of the group ``tallystick.systems`` (name = module).
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any, Final, cast

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
from tallystick.systems import folders
from tallystick.systems.protocol import ResourceTraits, System

# A folder is searched in this order: formats with an unmistakable signature first.
PACKAGES: dict[str, str] = {
    "tally": "tallystick.systems.tally",
    "bitronix": "tallystick.systems.bitronix",
    "h2": "tallystick.systems.h2",
    "derby": "tallystick.systems.derby",
    "jboss": "tallystick.systems.jboss",
    "cloudtran": "tallystick.systems.cloudtran",
}

NATIVE: Final = folders.NATIVE
"""The system of our own: what services write unless they are asked for another one."""

GROUP: Final = "tallystick.systems"
"""The group of entry points by which other distributions add systems."""

Path = str | os.PathLike[str]


@cache
def _installed() -> dict[str, str]:
    return {one.name: one.value for one in entry_points(group=GROUP)}


def _packages() -> dict[str, str]:
    """Return the package of every system by name; a name of ours cannot be taken over."""
    return {**PACKAGES, **{n: p for n, p in _installed().items() if n not in PACKAGES}}


def systems() -> tuple[System, ...]:
    """Return every registered system, most easily recognised first."""
    return tuple(system(name) for name in _packages())


def system(name: str) -> System:
    """Return the system of that name.

    Raises:
        KeyError: there is none.
    """
    return cast(System, import_module(_packages()[name]).SYSTEM)


def resource_traits(name: str) -> ResourceTraits:
    """Return what logs of that system tell of branches; the defaults for an unknown name."""
    return system(name).resource if name in _packages() else ResourceTraits()


def systems_with(role: Role) -> tuple[str, ...]:
    """Return the names of the systems whose logs can play ``role``."""
    return tuple(one.name for one in systems() if role in one.roles)


def role_class(role: Role, name: str) -> Any:
    """Return the class of that system that plays ``role``.

    Raises:
        UnsupportedFormatError: the system has no such role, or is not registered.
    """
    entry = system(name) if name in _packages() else None
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
    require_own(path, name, LOCAL)
    return cast(SharedDecisionLog, made(os.fspath(path), owner=owner))


def open_record_journal(path: Path, name: str = NATIVE, fs: FileSystem = LOCAL) -> RecordJournal:
    """Open or create a journal of records. Raises what opening that log raises."""
    return cast(RecordJournal, _open(Role.RECORD_JOURNAL, name, path, fs))


def open_journal_engine(path: Path, name: str = NATIVE, **options: Any) -> JournalEngine:
    """Open or create a journal with replay and followers. Raises what opening that log raises."""
    made = role_class(Role.JOURNAL, name)
    require_own(path, name, options.get("fs", LOCAL))
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


def require_own(path: Path, name: str, fs: FileSystem, *, named: bool = False) -> None:
    """Require that a folder holds no log but that of the system ``name``; nothing is written.

    Args:
        path: the folder.
        name: the system.
        fs: the file system.
        named: settings tell the names of its files.

    Raises:
        UnsupportedFormatError: it holds another one; the error says how to open that.
    """
    own = system(name)
    folders.require_own(os.fspath(path), fs, own, systems(), None if named else own.live_files)


def require_no_other(path: Path, looks_in: str, fs: FileSystem = LOCAL) -> None:
    """Require that a service's folder holds no log elsewhere than where the service looks.

    Args:
        path: the folder of the service.
        looks_in: the folder in it where its log is; empty: itself.
        fs: the file system.

    Raises:
        UnsupportedFormatError: it does; the error says how to open it.
    """
    folders.require_no_other(os.fspath(path), fs, looks_in, systems())


def _open(role: Role, name: str, path: Path, fs: FileSystem, **more: Any) -> Any:
    made = role_class(role, name)
    if role is Role.PAGED_LOG:
        folder, file = os.path.split(os.fspath(path))
        folders.require_own(folder, fs, system(name), systems(), file)
    else:
        require_own(path, name, fs)
    taken = system(name).role_options.get(role, frozenset())
    return made(os.fspath(path), fs=fs, **{key: more[key] for key in more if key in taken})
