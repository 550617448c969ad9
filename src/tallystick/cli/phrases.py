"""Entries of a verdict in words.

In: JSON values as `Verdict.strict` has them: mappings of a place, a transaction, its state and
what it touched. Out: one phrase: the kind of entry, what is known of it, its place. Long names are
cut in the middle; ``--json`` has them in full. Ids are never cut, and have one spelling.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from tallystick.reconcile.ids import xid_of
from tallystick.records import jsonable

NAME_MAX = 64
NAMES_MAX = 3
_SUBJECTS = ("what", "transaction", "gtrid", "id", "record_id")
_IN_NAME = ("gtrid", "bqual", "format_id")
_OF = ("resources", "participants", "targets", "branches")


def phrase(value: Any) -> str:
    """Return one entry in words."""
    plain = jsonable(value)
    if isinstance(plain, dict):
        return _mapping({name: item for name, item in plain.items() if item not in (None, [], {})})
    if isinstance(plain, list):
        return names(plain)
    xid = xid_of(str(plain))
    return shortened(str(plain)) if xid is None else str(xid)


def shortened(text: str) -> str:
    """Return a text of at most `NAME_MAX` characters; of a longer one its beginning and its end."""
    if len(text) <= NAME_MAX or " " in text:
        return text
    half = NAME_MAX // 2 - 1
    return f"{text[:half]}…{text[-half:]}"


def names(values: list[Any]) -> str:
    """Return the first of some values, and how many more there are."""
    text = ", ".join(map(phrase, values[:NAMES_MAX]))
    rest = len(values) - NAMES_MAX
    return f"{text} and {rest:,} more" if rest > 0 else text


def _mapping(entry: dict[str, Any]) -> str:
    parts = []
    if xid_of(str(entry.get("transaction"))):  # its name says all of this
        entry = {name: item for name, item in entry.items() if name not in _IN_NAME}
    if "what" in entry and "id" in entry:
        parts.append(f"{phrase(entry.pop('what'))} {phrase(entry.pop('id'))}")
    parts += [_subject(name, entry.pop(name)) for name in _SUBJECTS if name in entry]
    if "state" in entry:
        parts.append(str(entry.pop("state")).replace("_", " ").replace("-", " "))
    for name in _OF:
        if isinstance(entry.get(name), list):
            parts.append(f"{name} {names(entry.pop(name))}")
    where, why = _place(entry), entry.pop("why", None)
    parts += [_detail(name, item) for name, item in entry.items()]
    text = ", ".join(part for part in parts if part) + where
    return f"{text.strip()}: {why}" if why else text.strip()


def _subject(name: str, value: Any) -> str:
    if name == "what":
        return phrase(value)
    words = {"gtrid": "global transaction", "id": "record", "record_id": "record"}
    text = str(value).lower() if name == "gtrid" else str(xid_of(str(value)) or value)
    return f"{words.get(name, name)} {text}"


def _detail(name: str, value: Any) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"not {words}"
    if isinstance(value, dict):
        return f"{words} ({phrase(value)})"
    return f"{words} {phrase(value)}"


def _place(entry: dict[str, Any]) -> str:
    file, offset = entry.pop("file", None), entry.pop("offset", None)
    if file is not None:
        file = PurePath(str(file)).name
    text = f" in {file}" if file is not None else ""
    return f"{text} at offset {offset:,}" if isinstance(offset, int) else text
