"""What the small files in the directories of coordinators tell, which stands in no log.

In: paths and the logs below them. Out: a `Coordinator` for each directory, and what an `Estate` is
to know of it. Nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from tallystick.errors import LogUnreadableError, TallystickError
from tallystick.reading.discovery import parent, real
from tallystick.reading.names import log_name
from tallystick.reconcile.estate import Estate
from tallystick.roles.coordinator_files import (
    CLOSED_FILE,
    LOG_FOLDER,
    LOST_FILE,
    NODE_FILE,
    RESOURCES,
    last_resources,
    note_files,
    noted,
)
from tallystick.storage.local import LOCAL
from tallystick.storage.source import is_remote
from tallystick.systems.protocol import LogSource
from tallystick.systems.registry import NATIVE


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The directory of a coordinator.

    Attributes:
        folder: a path that was given, or what its log lies in.
        log: the name of its decision log, there or not.
        node: its name in the ids of its transactions; None where it cannot be read.
        lasts: its resources whose own commit decides.
        lost: whether decisions of it are known to be lost, or closed ones cannot be read.
    """

    folder: str
    log: str
    node: bytes | None
    lasts: tuple[str, ...]
    lost: bool

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files that tell this, and of its closed decisions."""
        names = (NODE_FILE, RESOURCES.name, LOST_FILE, *note_files(CLOSED_FILE))
        return tuple(str(Path(self.folder) / name) for name in names)

    @property
    def closed_file(self) -> str:
        """The newer file of the decisions that the log has forgotten."""
        return str(Path(self.folder) / CLOSED_FILE)

    def closed(self, gtrids: Collection[bytes]) -> set[bytes]:
        """Return those of the transactions that were decided to commit, and closed.

        None where that cannot be read: then decisions count as lost.
        """
        try:
            return set(noted(LOCAL, self.closed_file, gtrids))
        except LogUnreadableError:
            return set()


def coordinators_of(paths: Iterable[str], logs: Iterable[LogSource]) -> tuple[Coordinator, ...]:
    """Return the coordinators whose directory is a path, or holds one of the logs.

    One folder can be named in many ways: `.` and a link name it too, so real paths are compared.
    """
    names = {os.path.realpath(one.path): log_name(one) for one in logs if not is_remote(one.path)}
    folders = {real(path): path for path in paths if not is_remote(path)}
    for place, name in sorted(names.items()):
        above, last = os.path.split(place)
        if last == LOG_FOLDER:
            folders.setdefault(above, parent(name) if Path(name).name == LOG_FOLDER else above)
    return tuple(
        _coordinator(
            folder, names.get(str(Path(place) / LOG_FOLDER), str(Path(folder) / LOG_FOLDER))
        )
        for place, folder in folders.items()
        if is_coordinator(folder)
    )


def is_coordinator(path: str) -> bool:
    """Return True for the directory of a coordinator."""
    return not is_remote(path) and (Path(path) / NODE_FILE).is_file()


def _coordinator(folder: str, log: str) -> Coordinator:
    notes = note_files(str(Path(folder) / CLOSED_FILE))
    lost = (Path(folder) / LOST_FILE).is_file() or not all(map(_is_readable, notes))
    return Coordinator(folder, log, _node(folder), _deciding(folder), lost)


def _node(folder: str) -> bytes | None:
    try:
        return (Path(folder) / NODE_FILE).read_bytes().strip()
    except OSError:
        return None


def _is_readable(path: str) -> bool:
    """Return whether a file can be read, or is not there."""
    try:
        with Path(path).open("rb"):
            return True
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _deciding(folder: str) -> tuple[str, ...]:
    """Return the resources of a coordinator whose own commit decides."""
    try:
        known = RESOURCES.read(LOCAL, folder)
    except TallystickError:
        return (f"a database that {RESOURCES.name}, which cannot be read, names",)
    return tuple(sorted(last_resources(known)))


def add_coordinators(estate: Estate, coordinators: Iterable[Coordinator]) -> None:
    """Let an estate know whose the logs are, and what else their directories tell of them."""
    for one in coordinators:
        if one.node is not None:
            estate.add_coordinator(one.node, one.log)
        if one.lost:
            estate.damaged.add(one.log)
        estate.lasts[one.log] = one.lasts


def add_closed(estate: Estate, coordinators: Iterable[Coordinator]) -> None:
    """Add the closed decisions that the logs of coordinators have forgotten."""
    for one in coordinators:
        closed = one.closed(estate.in_doubt())
        estate.add_closed_decisions(NATIVE, one.log, one.closed_file, closed)
