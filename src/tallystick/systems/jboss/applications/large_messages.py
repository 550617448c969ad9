"""Whether the large messages that wait have their files.

In: the folder of these files, and what the messages of a journal need. Out: a `Part`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tallystick.printable import counted
from tallystick.records import Answer, AtStake, Part
from tallystick.storage.source import logical_name
from tallystick.systems.jboss.applications.needs import IF_COMMITTED, Needs
from tallystick.systems.jboss.applications.places import Place
from tallystick.systems.jboss.format.file_names import NEWER
from tallystick.systems.surroundings import names_beside, open_part

LISTED_MAX: Final = 5
"""Files are listed up to this many."""


def large_part(place: Place, needs: Needs, extension: str) -> Part:
    """Return the files of large messages, with what follows from those that are missing."""
    path, found_by, there = place
    wanted = {one: needs.large[one] for one in needs.wanted}
    names = {logical_name(name): name for name in names_beside(path)}

    def odd_of(sizes: Mapping[int, int | None]) -> list[str]:
        found = (odd_file(path, names, one, size) for one, size in sorted(sizes.items()))
        return list(filter(None, found))

    if odd := odd_of(wanted):
        why = f"{'; '.join(odd[:LISTED_MAX])}{' and more' if len(odd) > LISTED_MAX else ''}: "
        why += (
            f"a start delivers {counted(len(odd), 'large message')} in part, empty, or as another."
        )
        stake = AtStake(None, len(odd))
        return Part("large messages", path, found_by, there, False, why, Answer.LOSES, stake)
    if odd := odd_of(needs.large_in_doubt):
        why = f"{odd[0]}, and a transaction in doubt has sent it: it may be delivered in part."
        return Part(
            "large messages", path, found_by, there, False, why, Answer.CANNOT_TELL, AtStake(),
            IF_COMMITTED,
        )  # fmt: skip
    if extension == NEWER and (foreign := unnumbered(names, ".msg")):
        why = f"{foreign} has no number of a message: Artemis 2.29 and newer do not start with it."
        decided_by = "which version of the broker starts; or without that file"
        return Part(
            "large messages", path, found_by, there, False, why, Answer.CANNOT_TELL, AtStake(),
            decided_by,
        )  # fmt: skip
    why = "Every large message has its file." if wanted else "No large message waits."
    return Part("large messages", path, found_by, there, True, why)


def unnumbered(names: Iterable[str], ending: str) -> str:
    """Return a file of which a start takes the name for a number, in vain; empty if none.

    A copy beside the file of a large message or a page, as people, desktops and services make them.
    """
    own = (one for one in sorted(names) if one.endswith(ending))
    return next((one for one in own if not re.fullmatch(r"\d{1,19}", one.partition(".")[0])), "")


def odd_file(folder: str, names: Mapping[str, str], number: int, size: int | None) -> str:
    """Return what is wrong with the file of a large message, in words; empty if nothing is."""
    name = f"{number}.msg"
    if name not in names:
        return f"{name} is missing"
    source = open_part(f"{folder}/{names[name]}")
    if source is None:
        return f"{name} is missing"
    with source:
        found = len(source.data)
    if not found and size != 0:
        return f"{name} is empty"
    if size is None or found == size:
        return ""
    more = "" if found < size else ", so another file lies in its place"
    return f"{name} has {found:,} of {size:,} bytes{more}"
