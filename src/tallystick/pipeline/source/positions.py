"""How far the files of some logs were read: what a stream keeps between its steps.

In: positions. Out: where to go on in a file, and which files were passed. A file's life is its
(identity, generation): a recycled or rewound file begins a new life, and is read from its start
again.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tallystick.reading.discovery import parent

Position: TypeAlias = dict[str, list[Any]]
"""By file: identity, generation, and the offset after the last record read."""

Life: TypeAlias = tuple[int | None, int | None]
"""Identity and generation of a file."""


def begin_of(position: Position, path: str, life: Life) -> int:
    """Return the offset to continue at in a file that has this life now."""
    known = position.get(path)
    return int(known[2]) if known is not None and tuple(known[:2]) == life else 0


def passed(position: Position) -> dict[str, list[str]]:
    """Return, by folder, the files before the newest one, oldest first."""
    paths: dict[str, list[str]] = {}
    for path in sorted(position):
        paths.setdefault(parent(path), []).append(path)
    return {folder: found[:-1] for folder, found in paths.items() if len(found) > 1}


def capped(start: Position, position: Position, target: Position) -> Position:
    """Return the position after ``start`` without what was written after ``target`` was taken."""
    found: Position = {}
    for path, (identity, generation, end) in position.items():
        known = target.get(path)
        if known is not None and known[:2] == [identity, generation]:
            found[path] = [identity, generation, min(end, known[2])]
        elif path in start:
            found[path] = start[path]
    return found
