"""Damage to the files of a log, as disks, people and programs do it: at random, by a seed.

In: the files of a copy, and an older state of the same files. Out: the names of what was done.
`damage` hits any byte, `damage_head` the fields of records.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import tallystick

NUMBERS = (0, -1, 1, 3, 16, 21, 64, 0x7FFFFF00, 0x7FFFFFFF, -0x80000000)
FILLS = (b"\0", b"\xff", b"J")
BLOCKS = (64, 512, 4096)


def _bit(content: bytearray, at: int, rng: random.Random) -> None:
    content[at] ^= 1 << rng.randrange(8)


def _bytes(content: bytearray, at: int, rng: random.Random) -> None:
    size = min(rng.choice((1, 4, 16, 100)), len(content) - at)
    content[at : at + size] = rng.randbytes(size)


def _number(content: bytearray, at: int, rng: random.Random) -> None:
    if at + 4 <= len(content):
        struct.pack_into(">i", content, at, rng.choice(NUMBERS))


def _fill(content: bytearray, at: int, rng: random.Random) -> None:
    size = rng.choice((4, 40, 512, 4096))
    content[at : at + size] = rng.choice(FILLS) * len(content[at : at + size])


def _fill_to_end(content: bytearray, at: int, rng: random.Random) -> None:
    content[at:] = rng.choice(FILLS) * (len(content) - at)


def _cut(content: bytearray, at: int, rng: random.Random) -> None:
    del content[rng.choice((at, at, len(content) - rng.randrange(1, 30))) :]


def _swap(content: bytearray, at: int, rng: random.Random) -> None:
    size = rng.choice(BLOCKS)
    one, other = at // size * size, rng.randrange(_used(content)) // size * size
    if max(one, other) + size <= len(content):
        content[one : one + size], content[other : other + size] = (
            content[other : other + size],
            content[one : one + size],
        )


def _repeat(content: bytearray, at: int, rng: random.Random) -> None:
    size = rng.choice(BLOCKS)
    piece = content[at : at + size]
    to = rng.randrange(_used(content))
    content[to : to + size] = piece[: len(content) - to]


INSIDE: dict[str, Callable[[bytearray, int, random.Random], None]] = {
    "bit": _bit,
    "bytes": _bytes,
    "number": _number,
    "filled": _fill,
    "filled to the end": _fill_to_end,
    "cut": _cut,
    "blocks swapped": _swap,
    "block copied": _repeat,
}
IN_HEADS = {"bit in a head": _bit, "number in a head": _number}
HEAD_SIZE = 12
WHOLE = ("none", "file missing", "file emptied", "file over another", "older file", "older log")


def damage(files: Sequence[Path], older: Path, rng: random.Random) -> str:
    """Damage the files; return what was done."""
    kind = rng.choice([*INSIDE, *INSIDE, *WHOLE])
    if kind not in INSIDE:
        return _whole(kind, files, older, rng)
    for _ in range(rng.choice((1, 1, 1, 2))):
        _inside(kind, rng.choice([*files, files[-1]]), rng)
    return kind


def damage_head(folder: Path, rng: random.Random) -> str:
    """Damage a field at the beginning of a record, as damage at random seldom does."""
    records = tallystick.scan(folder, problems=[])
    places = [(Path(one.file), one.offset, one.length) for one in records if one.length]
    if not places:
        return "none"
    path, begin, length = rng.choice(places)
    kind = rng.choice(["bit in a head", *IN_HEADS])
    content = bytearray(path.read_bytes())
    IN_HEADS[kind](content, begin + rng.randrange(min(length, HEAD_SIZE)), rng)
    path.write_bytes(content)
    return kind


def _inside(kind: str, path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if not content:
        return
    used = _used(content)
    at = rng.randrange(used)
    if rng.random() < 0.3:
        at = max(0, used - 1 - rng.randrange(min(used, 600)))
    elif rng.random() < 0.2:
        at = rng.randrange(min(used, 64))
    INSIDE[kind](content, at, rng)
    path.write_bytes(content)


def _used(content: bytearray) -> int:
    """Return where the fill at the end begins."""
    return min(len(content), len(content.rstrip(b"J\0")) + 8)


def _whole(kind: str, files: Sequence[Path], older: Path, rng: random.Random) -> str:
    path = rng.choice(files)
    if kind == "file missing":
        path.unlink()
    elif kind == "file emptied":
        path.write_bytes(b"")
    elif kind == "file over another" and len(files) > 1:
        shutil.copyfile(path, rng.choice([one for one in files if one != path]))
    elif kind == "older file" and (older / path.name).exists():
        shutil.copyfile(older / path.name, path)
    elif kind == "older log":
        for one in files:
            one.unlink()
        for one in older.iterdir():
            if one.is_file():
                shutil.copyfile(one, path.parent / one.name)
    else:
        return "none"
    return kind
