"""Live logs by role and system: which class plays which role on which system.

In: a role, a system's name, a folder. Out: an open log in that role, of the type that
`tallystick.services.roles` names. Modules are imported when they are used. A seventh system
adds its line to `ROLES`.
"""

from __future__ import annotations

import os
from enum import StrEnum
from importlib import import_module
from typing import Any, cast

from tallystick.errors import UnsupportedFormatError
from tallystick.services.roles import DecisionLog, PagedLog, PersistLog, RecordJournal, UndoRedoLog
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL

Path = str | os.PathLike[str]


class Role(StrEnum):
    """What a log can be for."""

    DECISION_LOG = "decision log"
    RECORD_JOURNAL = "record journal"
    UNDO_REDO_LOG = "undo/redo log"
    PAGED_LOG = "undo/redo log with pages"
    PERSIST_LOG = "persist log"


ROLES: dict[Role, dict[str, str]] = {
    Role.DECISION_LOG: {
        "tally": "tally.roles:TallyDecisionLog",
        "bitronix": "bitronix.role:BitronixDecisionLog",
    },
    Role.RECORD_JOURNAL: {
        "tally": "tally.roles:TallyRecordJournal",
        "jboss": "jboss.role:JBossRecordJournal",
    },
    Role.UNDO_REDO_LOG: {
        "tally": "tally.undoredo:TallyUndoRedoLog",
        "h2": "h2.role:H2UndoRedoLog",
    },
    Role.PAGED_LOG: {
        "h2": "h2.store.paged:H2PagedLog",
    },
    Role.PERSIST_LOG: {
        "tally": "tally.roles:TallyPersistLog",
        "cloudtran": "cloudtran.role:CloudtranPersistLog",
    },
}


PAGED_FILES = {"h2": "store.h2.db"}
"""The file, in a store's folder, of a log that keeps pages beside itself."""


def open_decision_log(path: Path, system: str = "tally", fs: FileSystem = LOCAL) -> DecisionLog:
    """Open or create a coordinator's log. Raises what opening that log raises."""
    return cast(DecisionLog, _open(Role.DECISION_LOG, system, path, fs))


def open_record_journal(path: Path, system: str = "tally", fs: FileSystem = LOCAL) -> RecordJournal:
    """Open or create a journal of records. Raises what opening that log raises."""
    return cast(RecordJournal, _open(Role.RECORD_JOURNAL, system, path, fs))


def open_undo_redo_log(
    path: Path, system: str = "tally", fs: FileSystem = LOCAL, *, page_size: int = 4096
) -> UndoRedoLog:
    """Open or create an undo/redo log for pages of ``page_size`` bytes. Raises what opening
    that log raises."""
    more = {"page_size": page_size} if system == "h2" else {}
    return cast(UndoRedoLog, _open(Role.UNDO_REDO_LOG, system, path, fs, **more))


def paged_system_in(path: Path, fs: FileSystem = LOCAL) -> str | None:
    """The system whose log, with its pages, stands in this folder."""
    for system, file in PAGED_FILES.items():
        if fs.exists(f"{os.fspath(path)}/{file}"):
            return system
    return None


def open_paged_log(system: str, path: Path, fs: FileSystem = LOCAL) -> PagedLog:
    """Open or create an undo/redo log that keeps its pages. Raises what opening it raises."""
    file = f"{os.fspath(path)}/{PAGED_FILES[system]}"
    return cast(PagedLog, _open(Role.PAGED_LOG, system, file, fs))


def open_persist_log(path: Path, system: str = "tally", fs: FileSystem = LOCAL) -> PersistLog:
    """Open or create a persist log. Raises what opening that log raises."""
    return cast(PersistLog, _open(Role.PERSIST_LOG, system, path, fs))


def _open(role: Role, system: str, path: Path, fs: FileSystem, **more: Any) -> Any:
    if system not in ROLES[role]:
        raise UnsupportedFormatError(
            f"{system} is no {role.value}", expected=f"one of {', '.join(ROLES[role])}"
        )
    module, _, name = ROLES[role][system].partition(":")
    made = getattr(import_module(f"tallystick.systems.{module}"), name)
    return made(os.fspath(path), fs=fs, **more)
