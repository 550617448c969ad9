"""How far the files of some logs were read: what a stream keeps between its steps.

In: positions. Out: where to go on in a file, which files were passed, and proof that a file still
holds what was read. A file's life is its (identity, generation, rewrites): a recycled or rewound
file begins a new life, and is read from its start again.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, TypeAlias
from urllib.parse import quote

from tallystick.disposal.retention import ReaderOffset
from tallystick.errors import TallystickError
from tallystick.reading.discovery import parent
from tallystick.storage.source import read_part

Position: TypeAlias = dict[str, list[Any]]
"""By file: identity, generation, the offset after the last record read, digests of the last blocks
before that offset, and how often the file was read anew because its history was rewritten. Where
changes are followed also the name of the log and the place (`ChangesBetween`) of the last record
read. Those of earlier versions end after the offset, or before the name."""

Life: TypeAlias = tuple[int | None, int | None, int]
"""Identity and generation of a file, and the number of its rewritten histories."""

BLOCK_BYTES = 8 << 10
BLOCKS = 8
"""Bytes of a block, and the number of blocks before an offset whose digests stand for a history."""

_DIGEST_BYTES = 4


class HistoryRewrittenError(TallystickError):
    """What a stream has handed on is not in the log any more."""


def life_of(entry: list[Any]) -> Life:
    """Return the life that an entry of a position is about."""
    return entry[0], entry[1], entry[4] if len(entry) > 4 else 0


def digests_of(entry: list[Any]) -> str:
    """Return the digests of an entry; empty in positions of earlier versions."""
    return entry[3] if len(entry) > 3 else ""


def places_of(position: Position) -> dict[str, int]:
    """Return, by name of a log whose changes are followed, the place of its last record read."""
    found: dict[str, int] = {}
    for entry in position.values():
        for log, place in [entry[5:7]] if len(entry) > 6 else []:
            found[log] = max(place, found.get(log, 0))
    return found


def begin_of(position: Position, path: str, life: Life) -> int:
    """Return the offset to continue at in a file that has this life now."""
    known = position.get(path)
    return int(known[2]) if known is not None and life_of(known) == life else 0


def passed(position: Position) -> dict[str, list[str]]:
    """Return, by folder, the files before the newest one, oldest first."""
    paths: dict[str, list[str]] = {}
    for path in sorted(position):
        paths.setdefault(parent(path), []).append(path)
    return {folder: found[:-1] for folder, found in paths.items() if len(found) > 1}


def capped(start: Position, position: Position, target: Position) -> Position:
    """Return the position after ``start`` without what was written after ``target`` was taken."""
    found: Position = {}
    for path, entry in position.items():
        known = target.get(path)
        if known is not None and known[:2] == entry[:2]:
            later = entry[2] > known[2]
            found[path] = [*known[:4], entry[4], *known[5:]] if later else entry
        elif path in start:
            found[path] = start[path]
    return found


def reader_offset(hold_folder: str, log_folder: str) -> ReaderOffset:
    """Return how far a stream with this ``holdFolder`` has read a log, for `KeepForReader`."""
    return ReaderOffset(hold_folder, quote(log_folder, safe=""))


def digests(path: str, first: int, end: int) -> str:
    """Return the digests of the last blocks before ``end``, of bytes from ``first`` on."""
    return "".join(text for _, text in _blocks(path, first, end))


def require_unchanged(path: str, first: int, end: int, known: str) -> None:
    """Check that the bytes before ``end`` are those that gave the digests ``known``.

    Raises:
        HistoryRewrittenError: they are not; its offset is where they first differ, or the first
            byte that is still known where all of them do.
    """
    length = 2 * _DIGEST_BYTES
    wanted = [known[at : at + length] for at in range(0, len(known), length)]
    for (begin, now), was in zip(_blocks(path, first, end), wanted, strict=True):
        if now != was:
            raise HistoryRewrittenError(
                "records that the stream has handed on were taken back: the file was rewritten",
                file=path,
                offset=begin,
                expected=f"the bytes up to {end} that were read",
                found=f"others in the {BLOCK_BYTES} bytes from {begin} on",
                advice="Put the log back as it was; or read the file again, as a new one, with "
                "the option onRewrite=restart, and drop from the output what was taken back",
            )


def _blocks(path: str, first: int, end: int) -> Iterator[tuple[int, str]]:
    """Yield the offsets and digests of the last blocks; bytes that are gone count as none."""
    start = max((max(end - 1, 0) // BLOCK_BYTES - BLOCKS + 1) * BLOCK_BYTES, first)
    data = read_part(path, start, end - start) if start < end else b""
    begin = start
    while begin < end:
        after = min((begin // BLOCK_BYTES + 1) * BLOCK_BYTES, end)
        block = data[begin - start : after - start]
        yield begin, blake2b(block, digest_size=_DIGEST_BYTES).hexdigest()
        begin = after
