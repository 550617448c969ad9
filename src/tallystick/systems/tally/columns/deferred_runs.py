"""Switch from walking group by group to compiled runs once a log proves to be long.

NumPy and numba take as long to load as tens of thousands of groups take to walk, so they are loaded
late. Both ways verify every group alike.
"""

from __future__ import annotations

import sys
from typing import Final

from tallystick.arrow.numba_kernel import loaded_compiled
from tallystick.systems.tally.read.walk import Expected, Place, RunReader, SegmentView

_RUNS: Final = "tallystick.systems.tally.columns.group_runs"
WALKED_FIRST: Final = 50_000
"""Groups that are walked before the first run: a quarter of a second of them."""


class DeferredRunReader:
    """A `RunReader` for the state of a log that reads runs after ``walked_first`` groups.

    Where that is not given and compiled code is loaded already, it is used at once.
    """

    def __init__(self, walked_first: int | None = None) -> None:
        loaded = 1 if _RUNS in sys.modules else WALKED_FIRST
        self._left = loaded if walked_first is None else walked_first
        self._reader: RunReader | None = None

    def __call__(self, view: SegmentView, due: Expected, stop: int | None) -> Place | None:
        """Return a place with a run of groups; None while the log is walked group by group."""
        if self._reader is not None:
            return self._reader(view, due, stop)
        self._left -= 1
        if self._left == 0:
            self._reader = compiled_reader()
        return None


def compiled_reader() -> RunReader | None:
    """Return a reader of runs with all codes, large groups too; None without compiled code."""
    return loaded_compiled(_reader)


def _reader() -> RunReader:
    from tallystick.systems.tally.columns.group_runs import ALL_CODES, CompiledRunReader

    return CompiledRunReader(known=ALL_CODES, large=True)
