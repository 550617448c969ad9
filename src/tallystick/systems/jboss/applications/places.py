"""Where a broker keeps its journals, bindings, large messages and pages.

In: the folder of a journal. Out: the data directory, its settings, and the place of each part: of
the layout, or that which ``broker.xml`` gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tallystick.storage.source import folder_above, logical_name
from tallystick.systems.jboss.applications.broker_xml import (
    FILE_NAME,
    BrokerSettings,
    broker_settings,
)
from tallystick.systems.jboss.format.file_names import extension_of
from tallystick.systems.surroundings import names_beside

BINDINGS: Final = "bindings"
LAYOUT: Final = "the layout of a data directory"
_NAMES: Final = {
    "journal": ("journal", "messagingjournal"),
    "bindings": ("bindings", "messagingbindings"),
    "large-messages": ("large-messages", "largemessages", "large", "messaginglargemessages"),
    "paging": ("paging", "messagingpaging"),
}
"""Part -> names of its folder; Artemis names the settings ``bindings-directory`` and so on, and
JBoss AS 7 begins the names with ``messaging``."""


class Place(NamedTuple):
    """Where a part of a broker is.

    Attributes:
        path: its folder.
        found_by: what names it.
        there: whether it is there.
    """

    path: str
    found_by: str
    there: bool


class Layout(NamedTuple):
    """Where a broker is, and where it keeps its parts.

    Attributes:
        broker: its data directory.
        settings: what is said there of it.
        places: part -> where it is.
    """

    broker: str
    settings: BrokerSettings
    places: Mapping[str, Place]


def layout_of(folder: str) -> Layout:
    """Return the data directory of a journal, and where its parts are."""
    folder = folder.rstrip("/") or "/"
    broker = folder_above(folder)
    names = names_beside(broker)
    inside = any(map(is_bindings, names_beside(folder)))
    settings = broker_settings(broker, folder)
    places: dict[str, Place] = {}
    for part, usual in _NAMES.items():
        if (path := settings.folders.get(part)) is not None:
            parent, _, name = path.rpartition("/")
            there = bool(names_beside(path)) or name in names_beside(parent or "/")
            places[part] = Place(path, FILE_NAME, there)
            continue
        if part == "bindings" and inside:
            places[part] = Place(folder, LAYOUT, True)
            continue
        name = next((one for one in usual if one in names), usual[0])
        places[part] = Place(f"{broker}/{name}", LAYOUT, name in names)
    return Layout(broker, settings, places)


def of_other_case(layout: Layout) -> str:
    """Return the name of a part's folder in which only the case of letters is not a broker's.

    Empty where there is none, or where settings or a folder of the right name have the part.
    """
    lacking = [
        part for part, one in layout.places.items() if one.found_by == LAYOUT and not one.there
    ]
    usual = {name for part in lacking for name in _NAMES[part]}
    found = (one for one in names_beside(layout.broker) if one.lower() in usual) if usual else ()
    return min(found, default="")


def folder_of(part: str, folder: str) -> str:
    """Return where the broker of the journal in a folder keeps a part."""
    return layout_of(folder).places[part].path


def is_bindings(name: str) -> bool:
    """Return whether a file is one of a journal of bindings, by its name."""
    return extension_of(logical_name(name)) == "bindings"
