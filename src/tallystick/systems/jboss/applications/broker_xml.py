"""What ``broker.xml`` says of where a broker keeps its journals.

In: the data directory of a broker, and the folder of a journal. Out: `BrokerSettings`, empty where
no such file lies beside them, or where it names another journal. Only what decides which files a
start reads is looked for, by its elements, in what it includes, too. Of ``${property:default}`` the
default is taken: a start may set another value. A file that is empty, cut or cannot be read is
``damage``: the broker does not start with it.
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
from tallystick.systems.surroundings import part_bytes

FILE_NAME: Final = "broker.xml"
_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_WIDE: Final = (b"\xff\xfe", b"\xfe\xff")
"""Begins a file of which each letter has two bytes."""
_NOT_KNOWN: Final = (errors.XML_ERROR_UNKNOWN_ENCODING, errors.XML_ERROR_INCORRECT_ENCODING)
DATABASE, NOTHING = "a database", "nothing"
"""Where a broker keeps its messages that has them in no file."""
_NO_START: Final = "the broker does not start with it"
_FOLDER: Final = re.compile(r"<([a-z-]+)-directory>\s*([^<]+?)\s*</")
_DATABASE: Final = re.compile(r"<(?:\w+:)?database-store[\s>]")
_NOT_KEPT: Final = re.compile(r"<persistence-enabled>\s*false\s*</")
_PROPERTY: Final = re.compile(r"\$\{([^{}:]*)(?::([^{}]*))?\}")
_INCLUDE: Final = re.compile(r"""<\w+:include\s[^>]*?href\s*=\s*["']([^"']+)["']""")


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings of a broker.

    Attributes:
        path: of the file; empty without one.
        folders: those that it names, by the part of the broker that is kept there.
        kept_in: `DATABASE`, by JDBC, or `NOTHING`, where the broker reads none of its files.
        elsewhere: the journal that it names below its own folder where that is not the one asked
            for; then the others are as without a file.
        damage: why the broker does not start with the file, or where it keeps something cannot be
            told from it; empty where nothing is seen.
    """

    path: str = ""
    folders: Mapping[str, str] = field(default_factory=dict)
    kept_in: str = ""
    elsewhere: str = ""
    damage: str = ""


def broker_settings(broker: str, folder: str) -> BrokerSettings:
    """Return what the settings beside a data directory say, if they are those of this journal."""
    above, elsewhere, damaged = folder_above(broker), "", BrokerSettings()
    for path, home in ((f"{broker}/{FILE_NAME}", broker), (f"{above}/etc/{FILE_NAME}", above)):
        try:
            data = part_bytes(path)
        except LogUnreadableError as error:
            damaged = BrokerSettings(path, damage=f"{error}: {_NO_START}")
            continue
        if data is None:
            continue
        text, damage = _with_included(path, _COMMENT.sub("", _text(data)))
        named_there = [(part, _filled_in(one)) for part, one in _FOLDER.findall(text)]
        folders = {part: _below(home, one) for part, one in named_there if "${" not in one}
        if unknown := next((one for _, one in named_there if "${" in one), ""):
            damage = damage or f"{FILE_NAME} names {unknown}, which a property of the start decides"
        named = (folders.get("journal", folder), folders.get("bindings", ""))
        if any(same_place(folder, one) for one in named if one):
            kept = NOTHING if _NOT_KEPT.search(text) else DATABASE * bool(_DATABASE.search(text))
            return BrokerSettings(path, folders, kept, damage=_damage(data) or damage)
        # A place that is absolute is one of the machine that this was copied from, as a rule.
        if folders.get("journal", "").startswith(f"{home}/"):
            elsewhere = elsewhere or folders["journal"]
    return BrokerSettings(elsewhere=elsewhere) if elsewhere else damaged


def _with_included(path: str, text: str) -> tuple[str, str]:
    """Return a text with those that it includes, and which of them is not there, in words."""
    damage = ""
    for name in _INCLUDE.findall(text):
        if name.startswith(("/", "file:")):
            continue
        try:
            data = part_bytes(f"{folder_above(path)}/{name}")
        except LogUnreadableError as error:
            damage = f"{error}: {_NO_START}"
            continue
        if data is None:
            damage = damage or f"{FILE_NAME} includes {name}, which is not there: {_NO_START}"
            continue
        text += _COMMENT.sub("", _text(data))
    return text, damage


def _filled_in(text: str) -> str:
    """Return a text with the defaults of its properties; those that have none stay."""
    return _PROPERTY.sub(lambda one: one[0] if one[2] is None else one[2], text)


def _text(data: bytes) -> str:
    return data.decode("utf-16" if data.startswith(_WIDE) else "utf-8", "replace")


def _damage(data: bytes) -> str:
    """Return why this is no whole XML; empty if it is, or in an encoding that is not known here."""
    if not data.strip(b"\0 \t\r\n"):
        return f"{FILE_NAME} is empty: {_NO_START}"
    try:
        expat.ParserCreate().Parse(data, True)  # it asks for no file, and bounds what entities make
    except expat.ExpatError as error:
        text = expat.ErrorString(error.code)
        if text not in _NOT_KNOWN:
            return f"{FILE_NAME} is no whole XML: {text}, line {error.lineno}: {_NO_START}"
    except (ValueError, LookupError):  # of an encoding of many bytes, or none that Python has
        pass
    return ""


def _below(home: str, path: str) -> str:
    path = path.rstrip("/")
    return path if path.startswith("/") else f"{home}/{path.removeprefix('./')}"
