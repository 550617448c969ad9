"""Chunks of plain records, read by the compiled walk; loaded for long files only.

In: the bytes of a file and a range. Out: `PlainChunk`s from its beginning on, until a record is
not plain. The modules of this package that need NumPy are imported once a file proves to be long.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from tallystick.arrow.numba_kernel import pays
from tallystick.systems.bitronix.read.plain_records import Chunk

COMPILED_FROM = 1 << 21
"""Bytes of records from which on it pays to load the compiler for them."""
LOADED_FROM = 1 << 16
"""The same where the compiler is loaded already."""


def read_chunks(data: memoryview, begin: int, end: int) -> Iterator[Chunk]:
    """Yield the plain records of a range; none of a short one."""
    if not pays(end - begin, LOADED_FROM, COMPILED_FROM) or find_spec("numba") is None:
        return
    try:
        from tallystick.systems.bitronix.columns.chunk_columns import walk_chunks
    except (ImportError, RuntimeError):
        return  # numba refuses where it finds no folder for what it compiles
    yield from walk_chunks(data, begin, end)
