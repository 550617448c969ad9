"""The directory of a write-behind service: its log, its identity, and what its disposer refuses.

In: a path. Out: checks; nothing is written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

from tallystick.errors import TallystickError
from tallystick.indoubt.doctor.checks import Check, Level, judged, looked_at
from tallystick.indoubt.doctor.directory import check_log, logs_of
from tallystick.printable import printable, shell_quoted
from tallystick.refusals import reason_of
from tallystick.roles import Role
from tallystick.services.write_behind.service_dir import (
    IDENTITY_FILE,
    LOG_FOLDER,
    REFUSED_FILE,
    gave_all_away,
    holds_no_log,
    recorded_system,
)
from tallystick.storage.local import LOCAL
from tallystick.systems.registry import system


def is_service(path: str) -> bool:
    """Return True for the directory of a write-behind service, also without its identity."""
    folder = Path(path)
    return (folder / IDENTITY_FILE).is_file() or bool(
        logs_of(folder / LOG_FOLDER, Role.PERSIST_LOG)
    )


def check_service(path: str) -> Iterator[Check]:
    """Yield whether log and identity are there, and whether log files can be disposed of.

    Args:
        path: the directory.
    """
    folder = Path(path)
    log = folder / LOG_FOLDER
    yield from looked_at(path, "log", str(log), _log(path, log))
    yield judged(
        path, "disposal", "nothing is refused", _refused(folder / REFUSED_FILE),
        f"tallystick backlog {shell_quoted(path)}  "
        "# once the destination takes the file, it goes by itself", Level.PROBLEM,
    )  # fmt: skip


def _log(path: str, log: Path) -> Iterator[Check]:
    if holds_no_log(path, LOCAL):
        yield Check(
            path, "log", Level.PROBLEM,
            "its log is missing, or no file there is one: the service refuses to open",
            f"ls -la {shell_quoted(str(log))}  # is its volume mounted?",
        )  # fmt: skip
    else:
        if gave_all_away(path, LOCAL):
            yield Check(path, "log", Level.OK, "its disposer has taken all files")
        else:
            yield check_log(path, "log", log, Role.PERSIST_LOG, [])
        yield _identity(Path(path))


def _identity(folder: Path) -> Check:
    """Check that the service can be opened by its identity, which names it to its targets."""
    file, place = folder / IDENTITY_FILE, str(folder / LOG_FOLDER)
    bad, known, name = None, "", ""
    for one in logs_of(folder / LOG_FOLDER, Role.PERSIST_LOG):
        known, name = system(one.system).names_in(place, LOCAL)[0], one.system
    try:
        recorded_system(str(folder), LOCAL)
        if not file.is_file():
            bad = (
                "the identity of the service is lost: without it targets do not know what they hold"
            )
    except TallystickError as error:
        bad = error.message
    except OSError as error:
        line = f"ls -l {shell_quoted(str(file))}  # the user of the service has to read it"
        return Check(str(folder), "identity", Level.PROBLEM, reason_of(error), line)
    line = f"printf '%s\\n' {known or 'ID'} {name or 'SYSTEM'} > {shell_quoted(str(file))}"
    if not known:
        line += (
            "  # ID: SELECT DISTINCT log FROM tallystick_applied, in a SQL target; else of uuidgen"
        )
    return judged(str(folder), "identity", "it is there", bad, line, Level.PROBLEM)


def _refused(note: Path) -> str | None:
    """Return what is refused, since when."""
    try:
        found = json.loads(note.read_bytes())
        age, what = max(int(time.time()) - int(found["since"]), 0), str(found["refused"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError):
        return f"{note} cannot be read"
    return f"log files stay, and the disk fills: for {age:,} s {printable(what)}"
