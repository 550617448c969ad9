"""The directory of a write-behind service: its log, and what its disposer refuses.

In: a path. Out: checks; nothing is written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

from tallystick.indoubt.doctor.checks import Check, Level, judged
from tallystick.printable import printable
from tallystick.services.write_behind.service_dir import IDENTITY_FILE, LOG_FOLDER, REFUSED_FILE


def is_service(path: str) -> bool:
    """Return True for the directory of a write-behind service."""
    return (Path(path) / IDENTITY_FILE).is_file()


def check_service(path: str) -> Iterator[Check]:
    """Yield whether the log is there, and whether its files can be disposed of.

    Args:
        path: the directory.
    """
    folder = Path(path)
    log = folder / LOG_FOLDER
    there = log.is_dir() and any(log.iterdir())
    yield judged(
        path, "log", "it is there",
        None if there else "the log of this service is missing: the service refuses to open",
        f"ls -d {log}  # is its volume mounted?", Level.PROBLEM,
    )  # fmt: skip
    yield judged(
        path, "disposal", "nothing is refused", _refused(folder / REFUSED_FILE),
        f"tallystick backlog {path}  # once the destination takes the file, it goes by itself",
        Level.PROBLEM,
    )  # fmt: skip


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
