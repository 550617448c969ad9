"""What a boot of Derby opens besides the log: the folder of the database.

In: the folder of a log. Out: `Surroundings`, with what follows from each part. The database is the
folder above the log; a log without ``seg0`` beside it is a log alone. Nothing is written.
"""

from __future__ import annotations

from typing import Final

from tallystick.errors import LogUnreadableError
from tallystick.records import Answer, Part, Surroundings
from tallystick.storage.source import logical_name
from tallystick.systems.derby.format.layout import SEGMENT
from tallystick.systems.derby.read.files import PROPERTIES, database_of
from tallystick.systems.java_properties import parse_properties
from tallystick.systems.surroundings import alone, names_beside, open_part

OLD_PROPERTIES: Final = "service.propertiesold"
"""A boot takes it where there is no other: what an update that a crash ended has left."""
_REQUIRED: Final = ("derby.serviceProtocol", "SystablesIdentifier")
"""Properties without which a boot ends with XCY03; they stand at different ends of the file."""
_LAYOUT: Final = "the layout of a database"


def surroundings_of(log: str) -> Surroundings:
    """Return what a boot opens besides the log in a folder."""
    database = database_of(log)
    names = frozenset(map(logical_name, names_beside(database)))
    if SEGMENT not in names:
        return alone(log)
    return Surroundings(database, "database", (_properties(database, names),))


def _properties(database: str, names: frozenset[str]) -> Part:
    name = PROPERTIES if PROPERTIES in names or OLD_PROPERTIES not in names else OLD_PROPERTIES
    path = f"{database}/{name}"
    try:
        source = open_part(path)
    except LogUnreadableError as error:
        text = f"{error}. A boot needs it."
        return Part(name, path, _LAYOUT, why=text, answer=Answer.CANNOT_TELL)
    if source is None:
        text = f"{PROPERTIES} is missing: Derby does not find the database (XJ004, XBM0A)."
        return Part(name, path, _LAYOUT, there=False, why=text, answer=Answer.REFUSES)
    with source:
        found = parse_properties(bytes(source.data))
    lacking = next((one for one in _REQUIRED if one not in found), None)
    if lacking is not None:
        text = f"{name} does not have the property {lacking}: the database does not boot (XCY03)."
        return Part(name, path, _LAYOUT, fits=False, why=text, answer=Answer.REFUSES)
    return Part(name, path, _LAYOUT, fits=True, why="It has what a boot needs.")
