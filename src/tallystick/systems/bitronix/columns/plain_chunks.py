"""Chunks of plain records, read by the compiled walk; loaded for long files only.

In: the bytes of a file, and where to begin. Out: `PlainChunk`s, or a `Run`, until a record is not
plain. The modules of this package that need NumPy are imported once a file proves to be long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tallystick.arrow.numba_kernel import loaded_compiled, pays
from tallystick.systems.bitronix.read.plain_records import Chunk, Run

COMPILED_FROM = 1 << 21
"""Bytes of records from which on it pays to load the compiler for them."""
LOADED_FROM = 1 << 16
"""The same where the compiler is loaded already."""


def read_chunks(data: memoryview, begin: int, end: int) -> Iterator[Chunk]:
    """Yield the plain records of a range; none of a short one."""
    walk = loaded_compiled(_walk) if pays(end - begin, LOADED_FROM, COMPILED_FROM) else None
    if walk is not None:
        yield from walk(data, begin, end)


def read_run(data: memoryview, begin: int) -> Run | None:
    """Return the plain records that begin at an offset; None near the end of a file."""
    walk = None
    if pays(len(data) - begin, LOADED_FROM, COMPILED_FROM):
        walk = loaded_compiled(_walk_run)
    return None if walk is None else walk(data, begin)


def _walk_run() -> Callable[[memoryview, int], Run]:
    from tallystick.systems.bitronix.columns.chunk_columns import walk_run

    return walk_run


def _walk() -> Callable[[memoryview, int, int], Iterator[Chunk]]:
    from tallystick.systems.bitronix.columns.chunk_columns import walk_chunks

    return walk_chunks
