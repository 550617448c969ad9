"""Chunks of plain records, read by the compiled walk; loaded for long files only.

In: the bytes of a file and a range. Out: `PlainChunk`s from its beginning on, until a record is
not plain. The modules of this package that need NumPy are imported once a file proves to be long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tallystick.arrow.numba_kernel import loaded_compiled, pays
from tallystick.systems.bitronix.read.plain_records import Chunk

COMPILED_FROM = 1 << 21
"""Bytes of records from which on it pays to load the compiler for them."""
LOADED_FROM = 1 << 16
"""The same where the compiler is loaded already."""


def read_chunks(data: memoryview, begin: int, end: int) -> Iterator[Chunk]:
    """Yield the plain records of a range; none of a short one."""
    walk = loaded_compiled(_walk) if pays(end - begin, LOADED_FROM, COMPILED_FROM) else None
    if walk is not None:
        yield from walk(data, begin, end)


def _walk() -> Callable[[memoryview, int, int], Iterator[Chunk]]:
    from tallystick.systems.bitronix.columns.chunk_columns import walk_chunks

    return walk_chunks
