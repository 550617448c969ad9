"""What ``broker.xml`` says of where a broker keeps its journals.

In: the data directory of a broker, and the folder of a journal. Out: `BrokerSettings`, empty where
no such file lies beside them, or where it names another journal. Only what decides which files a
start reads is looked for, by its elements; what a file includes, or has as ``${property}``, is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tallystick.errors import LogUnreadableError
from tallystick.storage.source import folder_above, same_place
from tallystick.systems.surroundings import open_part

FILE_NAME: Final = "broker.xml"
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_FOLDER: Final = re.compile(r"<([a-z-]+)-directory>\s*([^<$]+?)\s*</")
_DATABASE: Final = re.compile(r"<(?:\w+:)?database-store[\s>]")


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings of a broker.

    Attributes:
        path: of the file; empty without one.
        folders: those that it names, by the part of the broker that is kept there.
        in_database: whether the broker keeps its journals in a database, by JDBC.
        elsewhere: the journal that it names below its own folder where that is not the one asked
            for; then the others are as without a file.
    """

    path: str = ""
    folders: Mapping[str, str] = field(default_factory=dict)
    in_database: bool = False
    elsewhere: str = ""


def broker_settings(broker: str, folder: str) -> BrokerSettings:
    """Return what the settings beside a data directory say, if they are those of this journal."""
    above, elsewhere = folder_above(broker), ""
    for path, home in ((f"{broker}/{FILE_NAME}", broker), (f"{above}/etc/{FILE_NAME}", above)):
        try:
            source = open_part(path)
        except LogUnreadableError:
            continue
        if source is None:
            continue
        with source:
            text = _COMMENT.sub("", bytes(source.data).decode("utf-8", "replace"))
        folders = {part: _below(home, one) for part, one in _FOLDER.findall(text)}
        named = (folders.get("journal", folder), folders.get("bindings", ""))
        if any(same_place(folder, one) for one in named if one):
            return BrokerSettings(path, folders, _DATABASE.search(text) is not None)
        # A place that is absolute is one of the machine that this was copied from, as a rule.
        if folders["journal"].startswith(f"{home}/"):
            elsewhere = elsewhere or folders["journal"]
    return BrokerSettings(elsewhere=elsewhere)


def _below(home: str, path: str) -> str:
    path = path.rstrip("/")
    return path if path.startswith("/") else f"{home}/{path.removeprefix('./')}"
