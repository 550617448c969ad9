"""What ``broker.xml`` says of where a broker keeps its journals.

In: the data directory of a broker, and the folder of a journal. Out: `BrokerSettings`, empty where
no such file lies beside them, or where it names another journal. Only what decides which files a
start reads is looked for, by its elements; what a file includes, or has as ``${property}``, is not.
A file that is empty, cut or cannot be read is ``damage``: the broker does not start with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat
from xml.parsers.expat import errors

from tallystick.errors import LogUnreadableError
from tallystick.storage.source import folder_above, same_place
from tallystick.systems.surroundings import open_part

FILE_NAME: Final = "broker.xml"
_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_WIDE: Final = (b"\xff\xfe", b"\xfe\xff")
"""Begins a file of which each letter has two bytes."""
_NOT_KNOWN: Final = (errors.XML_ERROR_UNKNOWN_ENCODING, errors.XML_ERROR_INCORRECT_ENCODING)
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
        damage: why the broker does not start with the file; empty where nothing is seen.
    """

    path: str = ""
    folders: Mapping[str, str] = field(default_factory=dict)
    in_database: bool = False
    elsewhere: str = ""
    damage: str = ""


def broker_settings(broker: str, folder: str) -> BrokerSettings:
    """Return what the settings beside a data directory say, if they are those of this journal."""
    above, elsewhere, damaged = folder_above(broker), "", BrokerSettings()
    for path, home in ((f"{broker}/{FILE_NAME}", broker), (f"{above}/etc/{FILE_NAME}", above)):
        try:
            source = open_part(path)
        except LogUnreadableError as error:
            damaged = BrokerSettings(path, damage=str(error))
            continue
        if source is None:
            continue
        with source:
            data = bytes(source.data)
        text = _COMMENT.sub("", _text(data))
        folders = {part: _below(home, one) for part, one in _FOLDER.findall(text)}
        named = (folders.get("journal", folder), folders.get("bindings", ""))
        if any(same_place(folder, one) for one in named if one):
            in_database = _DATABASE.search(text) is not None
            return BrokerSettings(path, folders, in_database, damage=_damage(data))
        # A place that is absolute is one of the machine that this was copied from, as a rule.
        if folders["journal"].startswith(f"{home}/"):
            elsewhere = elsewhere or folders["journal"]
    return BrokerSettings(elsewhere=elsewhere) if elsewhere else damaged


def _text(data: bytes) -> str:
    return data.decode("utf-16" if data.startswith(_WIDE) else "utf-8", "replace")


def _damage(data: bytes) -> str:
    """Return why this is no whole XML; empty if it is, or in an encoding that is not known here."""
    if not data.strip(b"\0 \t\r\n"):
        return f"{FILE_NAME} is empty"
    try:
        expat.ParserCreate().Parse(data, True)  # it asks for no file, and bounds what entities make
    except expat.ExpatError as error:
        text = expat.ErrorString(error.code)
        if text not in _NOT_KNOWN:
            return f"{FILE_NAME} is no whole XML: {text}, line {error.lineno}"
    except (ValueError, LookupError):  # of an encoding of many bytes, or none that Python has
        pass
    return ""


def _below(home: str, path: str) -> str:
    path = path.rstrip("/")
    return path if path.startswith("/") else f"{home}/{path.removeprefix('./')}"
