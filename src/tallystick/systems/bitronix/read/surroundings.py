"""What a start of Bitronix needs besides the bytes of a journal: that its files have their names.

In: a journal. Out: `Surroundings`, where a name differs from the usual one in the case of its
letters alone, or is that of a copy of the file that the other one has beside it. The names are
settings, so those of any other kind may be right. Nothing is written.
"""

from __future__ import annotations

from typing import Final

from tallystick.records import Surroundings
from tallystick.storage.source import logical_name
from tallystick.systems.bitronix.format.layout import DEFAULT_NAMES
from tallystick.systems.bitronix.read.detect import copied, twin_name
from tallystick.systems.protocol import LogSource
from tallystick.systems.surroundings import packed_part, renamed_part

_SETTINGS: Final = "the usual names of the files"
_DECIDED_BY: Final = "the names in the settings of the manager"


def surroundings_of(source: LogSource) -> Surroundings | None:
    """Return the part that a file is whose name has letters of another case; None if none has."""
    if (packed := packed_part(source.files, _SETTINGS)) is not None:
        return Surroundings(source.path, "journal", (packed,))
    names = sorted(map(logical_name, source.files))
    renamed = next((one for one in names if one not in DEFAULT_NAMES and _usual(one)), None)
    if renamed is None:
        return _copied(source, names)
    why = (
        f"The manager asks for {renamed.lower()} by default, not for {renamed}: it makes a new "
        "journal, or does not start, until it is renamed, where the file system tells large "
        "letters from small ones."
    )
    part = renamed_part(source.path, _SETTINGS, why, f"{_DECIDED_BY}, and the file system")
    return Surroundings(source.path, "journal", (part,))


def _copied(source: LogSource, names: list[str]) -> Surroundings | None:
    """Return the part that one file is whose name is that of a copy of a file which is not here."""
    twins = [twin for one in names if (twin := twin_name(one)) and twin not in names]
    found = next(((one, of) for one in names if (of := copied(one, twins))), None)
    if found is None or len(names) == 1:
        return None
    why = (
        f"{found[0]} is a copy of {found[1]} by its name, and that is not here: the manager opens "
        "the names in its settings, and does not start with one of them."
    )
    part = renamed_part(source.path, _SETTINGS, why, _DECIDED_BY)
    return Surroundings(source.path, "journal", (part,))


def _usual(name: str) -> bool:
    return name.lower() in DEFAULT_NAMES
