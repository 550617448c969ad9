"""Names of journal files: ``PREFIX-N.EXT``, with ``.cmp``, ``.tmp`` or ``.bkp`` behind.

In: a file name. Out: its prefix, number and extension. Names are hints; the content decides.
"""

from __future__ import annotations

import re

SUFFIXES = (".cmp", ".tmp", ".bkp")
KNOWN_EXTENSIONS = frozenset({"jbm", "hq", "amq", "bindings", "jms", "txlog"})
_NAME = re.compile(r"(?P<prefix>.+)-(?P<number>\d{1,18})\.(?P<extension>[^.]+)")


def without_suffix(name: str) -> str:
    """The name without what marks a half-made file."""
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def extension_of(name: str) -> str:
    """What stands behind the last dot of ``PREFIX-N.EXT``, empty for other names."""
    match = _NAME.fullmatch(without_suffix(name))
    return match["extension"] if match else ""


def prefix_of(name: str) -> str:
    """What stands before the number of ``PREFIX-N.EXT``, empty for other names."""
    match = _NAME.fullmatch(without_suffix(name))
    return match["prefix"] if match else ""


def number_of(name: str) -> int:
    """The number in the name, 0 for other names."""
    match = _NAME.fullmatch(without_suffix(name))
    return int(match["number"]) if match else 0
