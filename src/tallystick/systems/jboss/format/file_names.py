"""Names of journal files: ``PREFIX-N.EXT``, followed by ``.cmp``, ``.tmp`` or ``.bkp``.

In: a file name. Out: its prefix, number and extension. Names are hints; the content decides.
"""

from __future__ import annotations

import re

COMPACTED = ".cmp"
"""Suffix of the new files of a compaction until they replace the old ones."""
TEMPORARY = ".tmp"
"""Suffix of a file that is being created."""
SUFFIXES = (COMPACTED, TEMPORARY, ".bkp")
OLDER, NEWER = "hq", "amq"
"""Extensions of the journals of messages of HornetQ, and of Artemis."""
KNOWN_EXTENSIONS = frozenset({"jbm", "hq", "amq", "bindings", "jms", "txlog"})
_NAME = re.compile(r"(?P<prefix>.+)-(?P<number>\d{1,18})\.(?P<extension>[^.]+)")


def without_suffix(name: str) -> str:
    """Return the name without the suffixes of unfinished files."""
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def extension_of(name: str) -> str:
    """Return ``EXT`` of ``PREFIX-N.EXT``; empty for other names."""
    match = _NAME.fullmatch(without_suffix(name))
    return match["extension"] if match else ""


def prefix_of(name: str) -> str:
    """Return ``PREFIX`` of ``PREFIX-N.EXT``; empty for other names."""
    match = _NAME.fullmatch(without_suffix(name))
    return match["prefix"] if match else ""


def number_of(name: str) -> int:
    """Return ``N`` of ``PREFIX-N.EXT``; 0 for other names."""
    match = _NAME.fullmatch(without_suffix(name))
    return int(match["number"]) if match else 0
