"""What a start of Bitronix needs besides the bytes of a journal: that its files have their names.

In: a journal. Out: `Surroundings`, where a name differs from the usual one in the case of its
letters alone. The names are settings, so those of any other kind may be right. Nothing is written.
"""

from __future__ import annotations

from typing import Final

from tallystick.records import Surroundings
from tallystick.storage.source import logical_name
from tallystick.systems.bitronix.format.layout import DEFAULT_NAMES
from tallystick.systems.protocol import LogSource
from tallystick.systems.surroundings import renamed_part

_SETTINGS: Final = "the usual names of the files"


def surroundings_of(source: LogSource) -> Surroundings | None:
    """Return the part that a file is whose name has letters of another case; None if none has."""
    names = sorted(map(logical_name, source.files))
    renamed = next((one for one in names if one not in DEFAULT_NAMES and _usual(one)), None)
    if renamed is None:
        return None
    why = (
        f"The manager asks for {renamed.lower()} by default, not for {renamed}: it makes a new "
        "journal, or does not start, until it is renamed, where the file system tells large "
        "letters from small ones."
    )
    decided_by = "the names in the settings of the manager, and the file system of the start"
    part = renamed_part(source.path, _SETTINGS, why, decided_by)
    return Surroundings(source.path, "journal", (part,))


def _usual(name: str) -> bool:
    return name.lower() in DEFAULT_NAMES
