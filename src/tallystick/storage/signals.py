"""Keep Ctrl-C from interrupting a flush that other callers wait for.

In: a block of work. Out: the same block; a SIGINT during it takes effect at its end.
"""

from __future__ import annotations

import importlib
import signal
from types import TracebackType
from typing import Any

from tallystick.storage.scheduling import threading

# Two calls with every lone commit: without its conversions to enums the module is ten times
# as fast. Where an interpreter has no such layer, the public module does.
try:
    _fast: Any = importlib.import_module("_signal")
except ImportError:
    _fast = signal
_SIGINT = int(signal.SIGINT)
_main = threading.main_thread()


class defer_sigint:  # noqa: N801 - called like a function, as `contextlib.suppress` is
    """Raise a SIGINT that arrives during the block again at its end.

    Only the main thread runs signal handlers, so in others this does nothing, nor where Python
    did not install the handler.
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
