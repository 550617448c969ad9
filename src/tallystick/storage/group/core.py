"""The compiled core of group commit, where it is installed.

In: the module ``tallystick_fast`` and the environment variable ``TALLYSTICK_PURE``. Out: `CORE`.
The core is never needed: without it `tallystick.storage.group.queue` does the same in Python.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Final

from tallystick.errors import LogWriteError, copy_error

INTERFACE: Final = 2
"""Number of the interface between this package and the core; a core of another one is not used."""


def own_flush_error(path: str) -> LogWriteError:
    """Return the error for a thread that flushes and would wait for itself for ever."""
    return LogWriteError(
        "a flush cannot wait for itself",
        file=path,
        advice="Wait outside of write, sync and exclusive blocks",
    )


def _load() -> Any:
    """Return the compiled module; None without it, or with ``TALLYSTICK_PURE`` set to 1."""
    if os.environ.get("TALLYSTICK_PURE") == "1":
        return None
    try:
        module = importlib.import_module("tallystick_fast")
    except ImportError:
        return None
    if getattr(module, "INTERFACE", None) != INTERFACE:
        return None
    module.set_errors(copy_error, own_flush_error)
    return module


CORE: Final[Any] = _load()
"""The compiled module, or None: then everything runs in Python."""
