"""What H2 opens besides the first file of a database: later parts, and large objects in files.

In: the files of a log, and the large objects that rows name. Out: `Surroundings`, with what follows
from each part. A database that is one file has none. Nothing is written.
Source: ``FilePathSplit``, ``ValueLob.getFileName`` of H2 1.2 and 1.3.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import chain, count, takewhile
from typing import Final, NamedTuple

from tallystick.printable import counted
from tallystick.records import Answer, AtStake, Part, Surroundings
from tallystick.storage.files import Bytes
from tallystick.storage.source import (
    FOLDER,
    folder_above,
    in_the_way,
    link_target,
    link_to_nothing,
    logical_name,
    source_size,
)
from tallystick.systems.h2.format.layout import INNER_MAGIC_OFFSET, MAGIC, MAGIC_SIZE
from tallystick.systems.h2.format.secure import decrypted_object
from tallystick.systems.h2.format.values.types import Value
from tallystick.systems.h2.read.detect import MV_SUFFIX, PART, SUFFIX
from tallystick.systems.protocol import LogSource
from tallystick.systems.surroundings import names_beside, open_part, packed_part, renamed_part

_SPLIT: Final = "the names that split: gives"
_LAYOUT: Final = "the layout of a database"
_LOCK: Final = ".lock.db"
_LOBS: Final = ".lobs.db"
"""Ends the name of the folder of large objects."""
_FILES_PER_FOLDER: Final = 256
_MISSING_MAX: Final = 5
"""Names that a text lists."""
_IN_FILE: Final = re.compile(r"file:table=(-?\d+),id=(-?\d+),length=(-?\d+)(,packed)?")
"""Text of a large object in a file of its own."""
_MARKS_END, _ALIGNED, _FILL_MIN = 3 * MAGIC_SIZE, 16, 2
"""A file of a large object: marks, then blocks, each filled with at least two bytes."""
_LENGTH: Final = struct.Struct(">i")
_NO_LETTER, _NO_PAIR = bytes(range(0x80, 0xC0)), bytes(range(0xF0))
"""Bytes of UTF-8 that begin no letter; and those that begin none of the letters which Java counts
as two. Without them the bytes that do are left, and can be counted."""


class LobFile(NamedTuple):
    """A large object in a file of its own, whose name has the table and the number of the object.

    Attributes:
        length: its length as its row states it: in bytes, or of a text in letters as Java counts
            them.
        text: whether it is a text.
        packed: whether its blocks are compressed.
    """

    table: int
    number: int
    length: int
    text: bool = False
    packed: bool = False


def lob_file(value: Value) -> LobFile | None:
    """Return the large object in a file that a value names; None where it names none."""
    if value.type not in ("BLOB", "CLOB") or not isinstance(value.text, str):
        return None
    found = _IN_FILE.fullmatch(value.text)
    if found is None:
        return None
    table, number, length = map(int, found.groups()[:3])
    return LobFile(table, number, length, value.type == "CLOB", found[4] is not None)


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
    return _joined(parts)


def _joined(parts: dict[int, str]) -> list[str]:
    return [parts[one] for one in takewhile(parts.__contains__, count())]


def surroundings_of(
    source: LogSource, lobs: Iterable[LobFile], password: str | None = None
) -> Surroundings | None:
    """Return what the engine opens besides the first file; None where that is the database."""
    first, parts = numbered(source)
    if (copy := _copy(first, has_lobs=bool(lobs := sorted(lobs)))) is not None:
        return Surroundings(first, "database", (copy,), reads_log=False)
    packed = packed_part(parts.values(), _SPLIT)
    found = (
        *_renamed(first, parts), *([packed] if packed else []), *_other_store(first),
        *_locked(first),
        *_linked(first, has_others=bool(lobs) or len(parts) > 1), *_split(first, parts),
        *_large_objects(first, lobs, password),
    )  # fmt: skip
    return Surroundings(first, "database", found) if found else None


def _renamed(first: str, parts: dict[int, str]) -> Iterator[Part]:
    """Yield a part if a file's name ends as that of another store, or not in small letters."""
    for path in (first, *parts.values()):
        name = logical_name(path)
        if name.lower().endswith(MV_SUFFIX):
            usual = name[: -len(MV_SUFFIX)] + SUFFIX
            why = (
                f"It is a page store, and H2 takes a file of this name for one of its other store, "
                f"and refuses it (90030), or asks for {usual}, and makes a new database."
            )
            yield renamed_part(path, _LAYOUT, why, f"whether it is renamed to {usual}")
            return
        start = name.lower().rfind(SUFFIX)
        usual = name[:start] + name[start:].lower()
        if start >= 0 and name != usual:
            why = (
                f"H2 asks for {usual}, not for {name}: it makes a new database until it is "
                "renamed, where the file system tells large letters from small ones."
            )
            decided_by = "whether it is renamed before the start, and the file system of the start"
            yield renamed_part(path, _LAYOUT, why, decided_by)
            return


def _copy(first: str, *, has_lobs: bool) -> Part | None:
    """Return the part that a file is which only its name parts from the rest of a database.

    H2 opens no file of such a name. Alone, it is looked at as if it had the right one; but of a
    file beside parts or large objects nobody knows whether they are its own.
    """
    name = logical_name(first)
    if name.lower().endswith((SUFFIX, MV_SUFFIX)):
        return None
    names = sorted(map(logical_name, names_beside(first.rpartition("/")[0])))
    parts = ((place[1][: -len(SUFFIX)], one) for one in names if (place := PART.fullmatch(one)))
    lobs = ((one.removesuffix(_LOBS), one) for one in names if has_lobs and one.endswith(_LOBS))
    if not (beside := next((one for stem, one in chain(parts, lobs) if stem in name), "")):
        return None
    why = (
        f"H2 opens no file with the name {name}: it is a copy, and whether {beside} belongs to it "
        "cannot be told."
    )
    return renamed_part(first, _LAYOUT, why, "under which name, and with which files, it is opened")


def _linked(first: str, *, has_others: bool) -> Iterator[Part]:
    """Yield a part if the first file is a link, and the engine does not come to all by its target.

    It follows the link, cuts six letters off the name that it finds there, and asks for a database
    of what is left. Source: ``ConnectionInfo.getName``.
    """
    if not (target := link_target(first)):
        return
    if not target.endswith(SUFFIX):
        why = (
            f"It is a link to {target}, and H2 takes the name of the database from there: as that "
            f"does not end in {SUFFIX}, it refuses it (90138), or opens another one, or a new one."
        )
        decided_by = f"whether the link leads to a name that ends in {SUFFIX}"
    elif has_others:
        why = (
            f"It is a link to {target}, and H2 looks for the rest of the database beside that, "
            "under that name."
        )
        decided_by = "what lies beside the target of the link"
    else:
        return
    yield renamed_part(first, "the target of a link", why, decided_by)


def _locked(first: str) -> Iterator[Part]:
    """Yield the file that marks a database as open where the engine cannot write it."""
    name = logical_name(first)
    path = f"{first.rpartition('/')[0]}/{name.removesuffix(SUFFIX)}{_LOCK}"
    if name.endswith(SUFFIX) and (there := in_the_way(path)):
        text = f"In the place of {logical_name(path)} is {there}: H2 does not open the database "
        text += "(8000), unless FILE_LOCK=NO is in its URL, or another way that needs no file."
        decided_by = f"whether {logical_name(path)} is removed before the start"
        yield Part(
            logical_name(path), path, _LAYOUT, True, False, text, Answer.CANNOT_TELL, AtStake(),
            decided_by,
        )  # fmt: skip


def _other_store(first: str) -> Iterator[Part]:
    """Yield the file of the other store of H2 1.4, if one lies beside the first file."""
    folder, name = first.rpartition("/")[0], logical_name(first)
    other = name.removesuffix(SUFFIX) + MV_SUFFIX
    if not name.endswith(SUFFIX) or other not in names_beside(folder):
        return
    path = f"{folder}/{other}"
    if in_the_way(path) == FOLDER:
        text = (
            f"In the place of {other} is {FOLDER}: H2 1.3.176 and 1.4 open the database to read "
            "only, and refuse it where the log has changes to redo (90097)."
        )
        decided_by = f"whether {other} is removed before the start"
        yield Part(
            other, path, _LAYOUT, True, False, text, Answer.CANNOT_TELL, AtStake(), decided_by
        )
        return
    text = (
        f"H2 1.4 opens {other} in place of {name}, unless MV_STORE=FALSE is in its URL; the "
        "answer is about the start of an H2 that opens this file."
    )
    yield Part(other, path, _LAYOUT, why=text)


def _split(first: str, parts: dict[int, str]) -> Iterator[Part]:
    joined = _joined(parts)
    if len(parts) < 2 and 0 in parts:
        return
    if 0 not in parts:
        text = f"The first part, {logical_name(first)}, is missing: H2 opens none of the others."
        yield Part(logical_name(first), first, _SPLIT, False, why=text, answer=Answer.REFUSES)
        return
    last, size = len(joined) - 1, source_size(parts[0])
    for number in range(max(parts) + 1):
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
            text = f"{name} has {own} bytes, and the first part {size}: H2 does not open them"
            answer = Answer.REFUSES
            if own < size and size & size - 1:  # no part: their size is a power of two
                text += " with split: in its URL. Without, it opens the first file alone"
                answer = Answer.CANNOT_TELL
            yield Part(name, path, _SPLIT, fits=False, why=f"{text}.", answer=answer)
        elif number:
            text = "It goes on where the part before it ends; H2 opens it with split: in its URL."
            yield Part(name, path, _SPLIT, fits=True, why=text)


def _large_objects(first: str, lobs: Sequence[LobFile], password: str | None) -> Iterator[Part]:
    folder = _folder_of(first)
    listed = cache(_files_in)
    name = folder.rpartition("/")[2]
    above = folder_above(folder)
    there = name in listed(above)
    missing = [one for one in lobs if not _has(folder, one, listed)]
    if missing:
        some = ", ".join(_place("", one)[1] for one in missing[:_MISSING_MAX])
        of = counted(len(missing), "file of a large object", "files of large objects")
        are = "is" if len(missing) == 1 else "are"
        text = f"{of} that rows name {are} not there: {some}."
        yield Part(name, folder, _LAYOUT, there=there, fits=False, why=text, answer=Answer.LOSES)
        return
    short = [text for one in lobs if (text := _problem(folder, one, listed, password))]
    if short:
        of = counted(len(short), "file of a large object", "files of large objects")
        are = "is" if len(short) == 1 else "are"
        text = f"{of} {are} not as rows say: {'; '.join(short[:_MISSING_MAX])}."
        yield Part(name, folder, _LAYOUT, fits=False, why=text, answer=Answer.LOSES)
    elif there:
        of = counted(len(lobs), "large object")
        text = f"Rows name {of}, and each has its file." if lobs else "No row names one."
        yield Part(name, folder, _LAYOUT, fits=True, why=text)


def _files_in(folder: str) -> frozenset[str]:
    """Return the names in a folder that lead to something: others are missing to the engine."""
    names = names_beside(folder)
    return frozenset(logical_name(one) for one in names if not link_to_nothing(f"{folder}/{one}"))


def _folder_of(first: str) -> str:
    """Return the folder of the large objects of a database."""
    return logical_path(first).removesuffix(SUFFIX) + _LOBS


def _problem(
    folder: str, lob: LobFile, listed: Callable[[str], frozenset[str]], password: str | None
) -> str:
    """Return what is wrong with the file of a large object; empty if nothing is seen."""
    place, name = _place(folder, lob)
    parts = (f"{name}.{number}.part" for number in count(1))  # with split: these have parts, too
    names = [name, *takewhile(listed(place).__contains__, parts)]
    with ExitStack() as opened:
        sources = [open_part(f"{place}/{one}") for one in names]
        views = [opened.enter_context(one).data for one in sources if one is not None]
        if len(views) < len(names):
            return ""
        data = views[0] if len(views) == 1 else memoryview(b"".join(views))
        marks = bytes(data[:_MARKS_END])
        if len(marks) < _MARKS_END or marks[:MAGIC_SIZE] != MAGIC:
            return f"{name} does not begin as one"
        clear: Bytes | None = data
        if marks[INNER_MAGIC_OFFSET:] != MAGIC:
            clear = None if password is None else decrypted_object(data, password)
        if clear is None:
            return f"{name} does not open with the file password"
        return "" if _is_whole(clear, lob) else f"{name} has another length"


def _is_whole(data: Bytes, lob: LobFile) -> bool:
    """Return whether blocks fill a file and hold what the row says.

    Letters that are compressed are not counted: each is one to three bytes.
    """
    at, held = _MARKS_END, 0
    head = (1 + lob.packed) * _LENGTH.size
    while at + head <= len(data):
        size = _LENGTH.unpack_from(data, at)[0]
        if size <= 0:
            return False
        if lob.packed:
            held += _LENGTH.unpack_from(data, at + _LENGTH.size)[0]
        elif lob.text:
            block = bytes(data[at + head : at + head + size])
            held += len(block.translate(None, _NO_LETTER)) + len(block.translate(None, _NO_PAIR))
        else:
            held += size
        at += head + size + _FILL_MIN
        at += -at % _ALIGNED
    if at != len(data) or lob.length < 0:
        return at == len(data)
    if lob.text and lob.packed:
        return lob.length <= held <= 3 * lob.length
    return held == lob.length


def logical_path(path: str) -> str:
    """Return a path without the suffix of a packed file."""
    return path[: len(path) - len(path.rpartition("/")[2])] + logical_name(path)


def _has(folder: str, lob: LobFile, listed: Callable[[str], frozenset[str]]) -> bool:
    where, name = _place(folder, lob)
    return name in listed(where)


def _place(folder: str, lob: LobFile) -> tuple[str, str]:
    """Return the folder and the name of the file of a large object."""
    rest, names = lob.number // _FILES_PER_FOLDER, list[str]()
    while rest:
        rest, place = divmod(rest, _FILES_PER_FOLDER)
        names.insert(0, f"/{place}.lobs.db")
    return folder + "".join(names), f"{lob.number}.t{lob.table}.lob.db"
