"""Plain Python functions that run as machine code where numba is installed.

In: a function over NumPy arrays and integers. Out: the same function, compiled lazily at
its first call and cached on disk, or as it is where numba is absent. One implementation.

Compiled functions do not count references: with it every call costs two atomic operations for
each array that it is given, more than most of them take in all. So they make no arrays and
return none; they fill those that their caller holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}


def kernel(function: _Function) -> _Function:
    """Compile ``function`` with numba (no Python objects, the interpreter lock released)."""
    try:
        import numba
    except ImportError:
        return function
    return cast(_Function, numba.njit(**_OPTIONS)(function))


def small_kernel(function: _Function) -> _Function:
    """As `kernel`, but copied into the kernels that call it: for what runs once per field."""
    try:
        import numba
    except ImportError:
        return function
    return cast(_Function, numba.njit(inline="always", **_OPTIONS)(function))


def pays(work: int, loaded_from: int, compiled_from: int) -> bool:
    """Whether there is so much work that it pays to call compiled code: where the compiler is not
    loaded yet it takes more."""
    return work >= (loaded_from if "numba" in sys.modules else compiled_from)
