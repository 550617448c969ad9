"""Ctrl-C must not tear a flush that other callers wait for.

In: a block of work. Out: the same block, with SIGINT held back to its end.
"""

from __future__ import annotations

import importlib
import signal
import threading
from types import TracebackType
from typing import Any

# Two calls with every lone commit: beneath its conversions to enums the module is ten times
# as fast. Where an interpreter has no such layer, the public one does.
try:
    _fast: Any = importlib.import_module("_signal")
except ImportError:
    _fast = signal
_SIGINT = int(signal.SIGINT)
_main = threading.main_thread()


class InterruptsHeldBack:
    """A context manager: a SIGINT that arrives in the block is raised again behind it.

    Only the main thread runs signal handlers, so elsewhere it does nothing, nor where the
    handler was not installed by Python.
    """

    __slots__ = ("_caught", "_handler")

    def __enter__(self) -> None:
        self._caught = False
        self._handler = None
        if threading.get_ident() == _main.ident:
            handler = _fast.getsignal(_SIGINT)
            if callable(handler):
                self._handler = handler
                _fast.signal(_SIGINT, self._catch)

    def _catch(self, _number: int, _frame: object) -> None:
        self._caught = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handler is not None:
            _fast.signal(_SIGINT, self._handler)
            if self._caught:
                signal.raise_signal(_SIGINT)
