"""What H2 opens besides the first file of a database: later parts, and large objects in files.

In: the files of a log, and the large objects that rows name. Out: `Surroundings`, with what follows
from each part. A database that is one file has none. Nothing is written.
Source: ``FilePathSplit``, ``ValueLob.getFileName`` of H2 1.2 and 1.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Final

from tallystick.records import Answer, Part, Surroundings
from tallystick.storage.source import logical_name, source_size
from tallystick.systems.h2.read.detect import PART, SUFFIX
from tallystick.systems.protocol import LogSource
from tallystick.systems.surroundings import names_beside

_SPLIT: Final = "the names that split: gives"
_LAYOUT: Final = "the layout of a database"
_FILES_PER_FOLDER: Final = 256
_MISSING_MAX: Final = 5
"""Names that a text lists."""
LobFile = tuple[int, int]
"""The table and the number of a large object in a file."""


def numbered(source: LogSource) -> tuple[str, dict[int, str]]:
    """Return the path of the first part of a database, and the paths of all parts by number."""
    first, parts = "", dict[int, str]()
    for path in source.files:
        place = PART.fullmatch(logical_name(path))
        if place is None:
            first = parts[0] = path
        else:
            first = first or f"{path.rpartition('/')[0]}/{place[1]}"
            parts[int(place[2])] = path
    return first, parts


def joined_parts(source: LogSource) -> list[str]:
    """Return the parts that the engine opens: from the first one on up to one that is missing."""
    _, parts = numbered(source)
    paths = list[str]()
    while (path := parts.get(len(paths))) is not None:
        paths.append(path)
    return paths


def surroundings_of(source: LogSource, lobs: Iterable[LobFile]) -> Surroundings | None:
    """Return what the engine opens besides the first file; None where that is the database."""
    first, parts = numbered(source)
    found = (*_split(first, parts), *_large_objects(first, sorted(lobs)))
    return Surroundings(first, "database", found) if found else None


def _split(first: str, parts: dict[int, str]) -> Iterator[Part]:
    if len(parts) < 2 and 0 in parts:
        return
    if 0 not in parts:
        text = f"The first part, {logical_name(first)}, is missing: H2 opens none of the others."
        yield Part(logical_name(first), first, _SPLIT, False, why=text, answer=Answer.REFUSES)
        return
    last, size = max(parts), source_size(parts[0])
    for number in range(last + 1):
        path = parts.get(number) or f"{first}.{number}.part"
        name = logical_name(path)
        if number not in parts:
            text = (
                f"{name} is missing: with split: in its URL H2 takes the parts before it for the "
                "whole database."
            )
            yield Part(name, path, _SPLIT, there=False, why=text, answer=Answer.CANNOT_TELL)
            return
        own = source_size(path)
        if own > size or (own < size and number < last) or not size:
            text = f"{name} has {own} bytes, and the first part {size}: H2 does not open them."
            yield Part(name, path, _SPLIT, fits=False, why=text, answer=Answer.REFUSES)
        elif number:
            text = "It goes on where the part before it ends; H2 opens it with split: in its URL."
            yield Part(name, path, _SPLIT, fits=True, why=text)


def _large_objects(first: str, lobs: Sequence[LobFile]) -> Iterator[Part]:
    folder = f"{logical_path(first).removesuffix(SUFFIX)}.lobs.db"
    listed = cache(lambda path: frozenset(map(logical_name, names_beside(path))))
    name = folder.rpartition("/")[2]
    above = folder.rpartition("/")[0] or "."
    there = name in listed(above)
    missing = [one for one in lobs if not _has(folder, *one, listed)]
    if missing:
        some = ", ".join(_place("", *one)[1] for one in missing[:_MISSING_MAX])
        text = f"{len(missing)} files of large objects that rows name are missing: {some}."
        yield Part(name, folder, _LAYOUT, there=there, fits=False, why=text, answer=Answer.LOSES)
    elif there:
        text = f"Each of the {len(lobs)} large objects that rows name has its file."
        yield Part(name, folder, _LAYOUT, fits=True, why=text)


def logical_path(path: str) -> str:
    """Return a path without the suffix of a packed file."""
    return path[: len(path) - len(path.rpartition("/")[2])] + logical_name(path)


def _has(folder: str, table: int, number: int, listed: Callable[[str], frozenset[str]]) -> bool:
    where, name = _place(folder, table, number)
    return name in listed(where)


def _place(folder: str, table: int, number: int) -> tuple[str, str]:
    """Return the folder and the name of the file of a large object."""
    rest, names = number // _FILES_PER_FOLDER, list[str]()
    while rest:
        rest, place = divmod(rest, _FILES_PER_FOLDER)
        names.insert(0, f"/{place}.lobs.db")
    return folder + "".join(names), f"{number}.t{table}.lob.db"
