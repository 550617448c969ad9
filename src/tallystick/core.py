"""The compiled core, where it is installed.

In: the module ``tallystick_fast`` and the environment variable ``TALLYSTICK_PURE``. Out: `CORE`.
The core is never needed: `tallystick.storage.group.queue` and `tallystick.storage.signals` do the
same in Python.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Final

INTERFACE: Final = 9
"""Number of the interface between this package and the core; a core of another one is not used."""


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
    return module


CORE: Final[Any] = _load()
"""The compiled module, or None: then everything runs in Python."""
