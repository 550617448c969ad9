"""Find Bitronix journals in a folder, and which two files belong together.

In: a `Folder`. Out: a `LogSource` per pair. The content decides: the format id, or where that is
damaged a plausible header followed by a whole first record or by nothing. The name decides only
where the content cannot: to find the other file of a pair, and for files that are empty, zeros or
shorter than a header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tallystick.storage.source import logical_name
from tallystick.systems.bitronix.format.layout import (
    FORMAT_ID,
    HEADER_LENGTH,
    MEGABYTE,
    SYSTEM_NAME,
    FileHeader,
)
from tallystick.systems.bitronix.format.record import decode_record
from tallystick.systems.protocol import Entry, Folder, LogSource
from tallystick.systems.surroundings import names_beside

_FORMAT_ID_BYTES = FORMAT_ID.to_bytes(4)
_PART_NUMBER = re.compile(r"[12](?=\D*$)")
"""The last 1 or 2 of a name, with no other digit after it."""
_USUAL_NAME = re.compile(r".*[12]\D*\.(tlog|btm)|btm.*[12]\D*", re.IGNORECASE)

_COPY_BEFORE = r"(?:(?:copy|backup|bak|old)(?:[ _]of)?[ ._-]+)?"
_COPY_WITHIN = r"(?:[ ._-]*(?:\(\d+\)|copy|backup|bak|old|orig|saved?|\d{4,14}))*"
_COPY_AFTER = r"(?:~|[ ._-].*)?"
"""What people and file managers put around the stem of a copy's name, and after its ending."""


def detect(folder: Folder) -> list[LogSource]:
    """Return the journals of the folder.

    Raises:
        LogUnreadableError: a file that had to be opened cannot be read.
    """
    sure = [entry for entry in folder.entries if _is_journal_file(entry)]
    silent = [entry for entry in folder.entries if _says_nothing(entry)]
    pairs = _pair_by_name(sure, folder.entries)
    paired = {entry.path for pair in pairs for entry in pair}
    rest = [entry for entry in sure if entry.path not in paired]
    # Without a common name two files are a pair if no other is left.
    pairs += [rest] if len(rest) == 2 else [[entry] for entry in rest]
    paired |= {entry.path for pair in pairs for entry in pair}
    silent = [entry for entry in silent if entry.path not in paired]
    pairs += _pair_by_name(silent, silent)
    return [_source(folder.path, pair, alone=len(pairs) == 1) for pair in pairs]


def put_aside(source: LogSource) -> str:
    """Return what files are that lie as copies beside both files of a journal; else nothing.

    The manager opens the two files that its settings name, and looks for no others.
    """
    names = frozenset(map(logical_name, names_beside(source.path)))
    whole = sorted(one for one in names if twin_name(one) in names)
    copies = [(name, copied(name, whole)) for name in map(logical_name, source.files)]
    if not copies or not all(of for _, of in copies):
        return ""
    listed = ", ".join(f"{name} (of {of})" for name, of in copies)
    many = len(copies) > 1
    return f"{listed}: {'copies' if many else 'a copy'} by name, which no manager opens"


def copied(name: str, names: Iterable[str]) -> str:
    """Return of which of these files another one is a copy, by its name; empty if of none."""
    for one in names:
        stem = _stem(one)
        parts = re.escape(stem), re.escape(one.removeprefix(stem))
        pattern = f"{_COPY_BEFORE}{parts[0]}{_COPY_WITHIN}{parts[1]}{_COPY_AFTER}"
        if name != one and re.fullmatch(pattern, name, re.IGNORECASE):
            return one
    return ""


def part_number(path: str) -> int | None:
    """Return 1 or 2 if the file's name states which part it is, else None."""
    found = _PART_NUMBER.search(_stem(logical_name(path)))
    return int(found.group()) if found else None


def _source(folder: str, pair: list[Entry], *, alone: bool) -> LogSource:
    paths = tuple(sorted(entry.path for entry in pair))
    return LogSource(SYSTEM_NAME, folder, paths, "" if alone else _key(pair[0].name))


# -- content -------------------------------------------------------------------------------------


def _is_journal_file(entry: Entry) -> bool:
    header = FileHeader.decode(entry.head)
    if header is None:  # cut, and the manager loops at start
        return entry.head.startswith(_FORMAT_ID_BYTES)
    if header.format_id == FORMAT_ID:
        return True
    plausible = (
        header.state in (0, -1) and header.timestamp > 0 and header.position >= HEADER_LENGTH
    )
    return plausible and (_has_first_record(entry) or _is_unused(entry, header))


def _has_first_record(entry: Entry) -> bool:
    return decode_record(entry.head, HEADER_LENGTH, len(entry.head)) is not None


def _is_unused(entry: Entry, header: FileHeader) -> bool:
    """Return whether the file has the right length, a usual name and no records."""
    if header.position != HEADER_LENGTH or not _USUAL_NAME.fullmatch(entry.name):
        return False
    with entry.open() as source:
        return source.size % MEGABYTE == HEADER_LENGTH


def _says_nothing(entry: Entry) -> bool:
    if not _USUAL_NAME.fullmatch(entry.name):
        return False
    return len(entry.head) < HEADER_LENGTH or not any(entry.head)


# -- pairs ---------------------------------------------------------------------------------------


def _pair_by_name(sure: Iterable[Entry], entries: Iterable[Entry]) -> list[list[Entry]]:
    """Return recognised files, each with the file whose name differs in the part's number only."""
    by_name = {entry.name: entry for entry in entries}
    pairs, seen = [], set()
    for entry in sure:
        twin = by_name.get(twin_name(entry.name) or "")
        if twin is None or entry.path in seen:
            continue
        seen |= {entry.path, twin.path}
        pairs.append([entry, twin])
    return pairs


def twin_name(name: str) -> str | None:
    """Return the name that the other file of a journal has; None where no number tells."""
    stem = _stem(name)
    found = _PART_NUMBER.search(stem)
    if found is None:
        return None
    other = "2" if found.group() == "1" else "1"
    return stem[: found.start()] + other + name[found.end() :]


def _key(name: str) -> str:
    return _PART_NUMBER.sub("", _stem(name)) or name


def _stem(name: str) -> str:
    """Return the name without its last suffix, where a digit would not be the part's."""
    stem, dot, _ = name.rpartition(".")
    return stem if dot else name
