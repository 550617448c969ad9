"""The answer about a database or broker: that of its log, with what a restart opens besides it.

In: the log's own answer, and the parts that its system names (`Part`), each with what follows from
it. Out: one answer. A reader that looks for parts returns `judged_whole` of its verdict; a log
alone has no parts, and its answer stays. A part is looked for only where the layout or a setting
of its system names a place, never by a search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from tallystick.errors import LogUnreadableError
from tallystick.records import Answer, AtStake, Judgement, Part, Surroundings, Verdict
from tallystick.storage.source import (
    PACKINGS,
    ByteSource,
    link_to_nothing,
    list_names,
    logical_name,
    open_source,
)
from tallystick.systems.answers import BESIDE_THE_LOG, DECIDES_FIRST, PART_LOST, PART_REFUSED

ALONE = "log"
"""The kind of a log with nothing of its database or broker beside it."""
FILE_NAMES = "file names"
"""The part that files are whose names are not as their system writes them."""

_ROWS = {
    Answer.CANNOT_TELL: BESIDE_THE_LOG,
    Answer.REFUSES: PART_REFUSED,
    Answer.LOSES: PART_LOST,
}


def alone(path: str) -> Surroundings:
    """Return the surroundings of a log with nothing of its database or broker beside it."""
    return Surroundings(path, ALONE)


def renamed_part(path: str, found_by: str, why: str, decided_by: str) -> Part:
    """Return the part that files are whose names have letters of another case."""
    return Part(
        FILE_NAMES, path, found_by, True, False, why, Answer.CANNOT_TELL, AtStake(), decided_by
    )


_BESIDE_MAX = 3
"""Files beside a missing one that a text names."""


def lying_beside(path: str) -> str:
    """Return a sentence that names what lies beside the place of a missing file under its name.

    Nothing of it is judged: a copy that somebody put aside may be the file, or an older one. Names
    of folders are common words: another name has to begin or to end with one. Empty without any.
    """
    folder, _, name = path.rstrip("/").rpartition("/")
    if not folder or not name:
        return ""
    word = re.escape(name)
    form = re.compile(f".*{word}.*" if "." in name else rf"{word}\W.*|.*\s{word}", re.IGNORECASE)
    found = sorted(one for one in names_beside(folder) if form.fullmatch(one) and one != name)
    if not found:
        return ""
    lie = "lies beside it, and is" if len(found) == 1 else "lie beside it, and are"
    named = ", ".join(found[:_BESIDE_MAX]) + " and more" * (len(found) > _BESIDE_MAX)
    return f"{named} {lie} not looked into."


def _with_copies(part: Part) -> Part:
    """Return a part; of one that is missing, and is missed, with what lies beside its place."""
    beside = "" if part.there or part.answer not in _ROWS else lying_beside(part.path)
    return replace(part, why=f"{part.why} {beside}") if beside else part


def packed_part(paths: Iterable[str], found_by: str) -> Part | None:
    """Return the part that one packed file is among others that are not; None without one.

    Where all are packed it is an archive, which is unpacked before a start.
    """
    every = list(paths)
    packed = [one for one in every if one.endswith(PACKINGS)]
    if not packed or len(packed) == len(every):
        return None
    wanted, name = logical_name(packed[0]), packed[0].rpartition("/")[2]
    why = f"Others are not packed, and a start asks for {wanted}: it does not find {name}."
    return renamed_part(packed[0], found_by, why, "whether it is unpacked before the start")


def judged_whole(
    verdict: Verdict, around: Surroundings, decided: Judgement | None = None
) -> Verdict:
    """Return the verdict of a log as that of what a restart starts.

    Args:
        verdict: about the log alone.
        around: what a restart opens besides it.
        decided: the log's answer without what the parts decide; None where they decide nothing.
    """
    around = replace(around, parts=tuple(map(_with_copies, around.parts)))
    own = verdict.judgement
    answer = joined(own if decided is None else decided, around)
    return replace(verdict, judgement=answer, surroundings=around, own=own)


def joined(own: Judgement, around: Surroundings) -> Judgement:
    """Return the graver of a log's own answer and what follows from the parts.

    Of equally grave ones the log's own stands, then the first part. Nothing follows from a log that
    a restart does not read.
    """
    parts = [_judgement(one) for one in around.parts if one.answer in _ROWS]
    answers = [own, *parts] if around.reads_log else parts
    found = min(answers, key=lambda one: DECIDES_FIRST.index(one.answer))
    others = {one.answer for one in answers if one is not found}
    if others.isdisjoint((Answer.LOSES, Answer.CANNOT_TELL)):
        return found
    # Of a doubt or another loss it is not known what it takes besides.
    return replace(found, at_stake=AtStake())


def _judgement(one: Part) -> Judgement:
    row = _ROWS[one.answer]
    decided_by = (one.decided_by or one.path) if row.decided_by else ""
    return Judgement(one.answer, row.code, one.why, at_stake=one.at_stake, decided_by=decided_by)


def open_part(path: str) -> ByteSource | None:
    """Open a file beside the log, packed or not; None if it is not there.

    Raises:
        LogUnreadableError: it is there, and cannot be read.
    """
    for packing in ("", *PACKINGS):
        try:
            return open_source(path + packing)
        except LogUnreadableError as error:
            if not is_missing(error):
                raise
    return None


def part_bytes(path: str) -> bytes | None:
    """Return what a file beside the log holds; None if it is not there. Raises as `open_part`."""
    source = open_part(path)
    if source is None:
        return None
    with source:
        return bytes(source.data)


def is_missing(error: LogUnreadableError) -> bool:
    """Return whether a file or folder cannot be read because it is not there."""
    return isinstance(error.__cause__, FileNotFoundError | NotADirectoryError)


def names_beside(folder: str) -> frozenset[str]:
    """Return the names in a folder; none where it is not there, or cannot be read."""
    try:
        return list_names(folder)
    except LogUnreadableError:
        return frozenset()


def unlisted(folder: str) -> str:
    """Return why the names in a folder that is there cannot be read; empty if they can.

    A link to nothing is there.
    """
    try:
        list_names(folder)
    except LogUnreadableError as error:
        return "" if is_missing(error) and not link_to_nothing(folder) else error.message
    return ""
