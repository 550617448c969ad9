"""Read whole blocks by compiled kernels once a log proves to be long.

NumPy and numba take as long to load as a megabyte of blocks takes to read one by one, so they are
loaded late. Both ways verify every block alike.
"""

from __future__ import annotations

from tallystick.arrow.numba_kernel import loaded_compiled, pays
from tallystick.systems.cloudtran.read.block_order import BlockOrder
from tallystick.systems.cloudtran.read.scan import FileScan
from tallystick.systems.cloudtran.read.whole_blocks import RunReader, WholeBlocks

COMPILED_FROM = 1 << 22
"""Bytes of a log from which on it pays to load the compiler for its blocks."""
LOADED_FROM = 1 << 18
"""The same where the compiler is loaded already."""


class DeferredRunReader:
    """A `RunReader` that reads runs as soon as the files so far are long enough together."""

    def __init__(self, loaded_from: int = LOADED_FROM, compiled_from: int = COMPILED_FROM) -> None:
        self._from = loaded_from, compiled_from
        self._bytes = 0
        self._reader: RunReader | None = None

    def __call__(self, scan: FileScan, order: BlockOrder, offset: int) -> WholeBlocks | None:
        """Return the run that begins with the block at ``offset``; None while the log is short."""
        if self._reader is None and offset == 0:
            self._bytes += scan.end
            self._reader = loaded_compiled(_reader) if pays(self._bytes, *self._from) else None
        return None if self._reader is None else self._reader(scan, order, offset)


def _reader() -> RunReader:
    from tallystick.systems.cloudtran.columns.block_runs import read_run

    return read_run
