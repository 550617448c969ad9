"""Mutants of logs: blocks swapped, cut, repeated and spliced, numbers at their limits, and seals.

In: a bundle, a source of random numbers, other bundles to take pieces from. Out: a mutant. After
most mutations the checksums are made right again (`seals`), so that the next check is reached.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable, Sequence
from typing import Literal

from tests.fuzz.bundle import UNPACKED_MAX, Bundle
from tests.fuzz.seals import SEALS

Piece = Callable[[bytes, int], bytes]
"""libFuzzer's own mutation of a few bytes: the bytes, and how many there may be."""

BLOCKS = (8, 16, 64, 128, 512, 512, 1024, 2048, 4096)
"""Sizes in bytes, and alignments, of blocks that are moved."""
WINDOW = 96
"""Bytes that libFuzzer mutates at once."""
NUMBERS = (
    0, 1, 2, 3, 4, 7, 8, 15, 16, 63, 64, 127, 128, 255, 256, 511, 512, 4095, 4096, 65535, 65536,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 62), (1 << 63) - 1, 1 << 63,
    (1 << 63) + 1, (1 << 64) - 2, (1 << 64) - 1,
)  # fmt: skip
SEALED = 0.8
"""Share of the mutants that are sealed."""


class Mutator:
    """Makes mutants of the logs of one system.

    Args:
        system: Its name.
        pool: Logs that pieces are taken from.
        piece: libFuzzer's mutation, guided by the comparisons that it has seen.
    """

    def __init__(self, system: str, pool: Sequence[Bundle], piece: Piece) -> None:
        self._seal = SEALS[system]
        self._pool = pool
        self._piece = piece

    def mutant(self, files: Bundle, seed: int) -> Bundle:
        """Return a mutant of a log."""
        rng = random.Random(seed)
        made = {name: bytearray(content) for name, content in files.items()}
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
            if not made:
                made = {k: bytearray(v) for k, v in rng.choice(self._pool).items()}
            self._step(made, rng)
        return self._finished(made, rng)

    def splice(self, one: Bundle, other: Bundle, seed: int) -> Bundle:
        """Return a log made of two: files of either, and heads of one before tails of the other."""
        rng = random.Random(seed)
        made = {name: bytearray(content) for name, content in one.items()}
        for name, content in other.items():
            if name not in made:
                if rng.random() < 0.3:
                    made[name] = bytearray(content)
            elif rng.random() < 0.5:
                size = rng.choice(BLOCKS)
                at = _place(rng, min(len(made[name]), len(content)), size)
                made[name] = bytearray(made[name][:at] + content[at:])
        return self._finished(made, rng)

    def _finished(self, made: dict[str, bytearray], rng: random.Random) -> Bundle:
        if rng.random() < SEALED:
            for name, data in made.items():
                self._seal(name, data)
        if rng.random() < 0.02 and made:
            _pack(made, rng)
        room = UNPACKED_MAX - 4096
        files: Bundle = {}
        for name, data in made.items():
            files[name] = bytes(data[: max(0, room)])
            room -= len(files[name])
        return files

    def _step(self, made: dict[str, bytearray], rng: random.Random) -> None:
        sizes = [len(data) + 64 for data in made.values()]
        name = rng.choices(list(made), sizes)[0]
        if rng.random() < 0.04:
            self._files(made, name, rng)
            return
        rng.choices(_STEPS, _WEIGHTS)[0](self, made[name], rng)

    def _files(self, made: dict[str, bytearray], name: str, rng: random.Random) -> None:
        """Remove a file, exchange two, give one another's content, or take one of another log."""
        other = rng.choice(list(made))
        how = rng.randrange(4)
        if how == 0:
            del made[name]
        elif how == 1:
            made[name], made[other] = made[other], made[name]
        elif how == 2:
            made[other] = bytearray(made[name])
        else:
            found, content = rng.choice(sorted(rng.choice(self._pool).items()) or [(name, b"")])
            made[found] = bytearray(content)

    def _bytes(self, data: bytearray, rng: random.Random) -> None:
        at = _used(rng, data)
        window = bytes(data[at : at + rng.randint(1, WINDOW)])
        changed = self._piece(window, WINDOW)
        if rng.random() < 0.8:
            changed = changed[: len(window)].ljust(len(window), b"\0")
        data[at : at + len(window)] = changed

    def _bit(self, data: bytearray, rng: random.Random) -> None:
        if data:
            data[_used(rng, data)] ^= 1 << rng.randrange(8)

    def _number(self, data: bytearray, rng: random.Random) -> None:
        size = rng.choice((1, 2, 4, 4, 8, 8))
        number = rng.choice((*NUMBERS, len(data), rng.randrange(1 << 16), rng.getrandbits(64)))
        at = _used(rng, data)
        if rng.random() < 0.5:
            at &= ~(size - 1)
        order = rng.choice(("<", ">"))
        raw = struct.pack(f"{order}Q", number)
        data[at : at + size] = raw[:size] if order == "<" else raw[-size:]

    def _near(self, data: bytearray, rng: random.Random) -> None:
        """Add a little to a number that stands there."""
        size = rng.choice((1, 2, 4, 8))
        order: Literal["little", "big"] = rng.choice(("little", "big"))
        at = _used(rng, data)
        field = data[at : at + size]
        number = int.from_bytes(field, order) + rng.choice((-1, 1, -8, 8, -512, 512, 1 << 31))
        data[at : at + len(field)] = (number % (1 << 8 * len(field))).to_bytes(len(field), order)

    def _swap(self, data: bytearray, rng: random.Random) -> None:
        size = rng.choice(BLOCKS)
        one, two = _place(rng, len(data), size), _place(rng, len(data), size)
        if abs(one - two) >= size and max(one, two) + size <= len(data):
            left, right = data[one : one + size], data[two : two + size]
            data[one : one + size], data[two : two + size] = right, left

    def _copy(self, data: bytearray, rng: random.Random) -> None:
        size = rng.choice(BLOCKS)
        one, two = _place(rng, len(data), size), _place(rng, len(data), size)
        data[one : one + size] = data[two : two + size]

    def _repeat(self, data: bytearray, rng: random.Random) -> None:
        size, times = rng.choice(BLOCKS), rng.choice((1, 2, 3, 8, 8, 40, 200))
        at = _place(rng, len(data), size)
        room = max(0, UNPACKED_MAX // 4 - len(data)) // size
        data[at:at] = bytes(data[at : at + size]) * min(times, room)

    def _remove(self, data: bytearray, rng: random.Random) -> None:
        size = rng.choice((1, 2, 4, *BLOCKS))
        at = _place(rng, len(data), size)
        del data[at : at + size]

    def _cut(self, data: bytearray, rng: random.Random) -> None:
        del data[_used(rng, data) :]

    def _fill(self, data: bytearray, rng: random.Random) -> None:
        size = rng.choice(BLOCKS)
        at = _place(rng, len(data), size)
        fill = rng.choice((b"\0", b"\xff", b"J", rng.randbytes(1)))
        data[at : at + size] = fill * len(data[at : at + size])

    def _grow(self, data: bytearray, rng: random.Random) -> None:
        size = rng.choice(BLOCKS)
        data += rng.choice((bytes(size), rng.randbytes(size), bytes(data[-size:])))

    def _foreign(self, data: bytearray, rng: random.Random) -> None:
        """Put a block of another log here."""
        log = rng.choice(self._pool)
        content = log[rng.choice(sorted(log))] if log else b""
        size = rng.choice(BLOCKS)
        at, other = _place(rng, len(data), size), _place(rng, len(content), size)
        piece = content[other : other + size]
        if rng.random() < 0.3:
            data[at:at] = piece
        else:
            data[at : at + len(piece)] = piece


_WEIGHED: tuple[tuple[Callable[[Mutator, bytearray, random.Random], None], int], ...] = (
    (Mutator._bytes, 6),
    (Mutator._bit, 3),
    (Mutator._number, 6),
    (Mutator._near, 4),
    (Mutator._swap, 2),
    (Mutator._copy, 2),
    (Mutator._repeat, 1),
    (Mutator._remove, 2),
    (Mutator._cut, 1),
    (Mutator._fill, 2),
    (Mutator._grow, 1),
    (Mutator._foreign, 3),
)
_STEPS = [step for step, _ in _WEIGHED]
_WEIGHTS = [weight for _, weight in _WEIGHED]


def _place(rng: random.Random, size: int, block: int) -> int:
    """Return the offset of a block, mostly at a multiple of its size."""
    at = rng.randrange(size + 1)
    return at // block * block if rng.random() < 0.8 else at


def _used(rng: random.Random, data: bytearray) -> int:
    """Return an offset, mostly one before the fill at the end of the file."""
    used = len(data.rstrip(data[-1:])) if data and rng.random() < 0.9 else len(data)
    used = min(len(data), used + 16)
    near = 256 if rng.random() < 0.2 else used
    return rng.randrange(max(1, min(used, near)))


def _pack(made: dict[str, bytearray], rng: random.Random) -> None:
    """Pack a file, whole or cut short."""
    name = rng.choice(list(made))
    packed = bytearray(gzip.compress(made.pop(name), 1, mtime=0))
    if rng.random() < 0.5 and packed:
        packed[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
    elif rng.random() < 0.3:
        del packed[rng.randrange(len(packed)) :]
    made[f"{name}.gz"] = packed
