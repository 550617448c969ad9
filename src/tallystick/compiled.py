"""Plain Python functions that run as machine code where numba is installed.

In: a function over NumPy arrays and integers. Out: the same function, compiled lazily at
its first call and cached on disk, or as it is where numba is absent. One implementation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(function: _Function) -> _Function:
    """Compile ``function`` with numba (no Python objects, the interpreter lock released)."""
    try:
        import numba
    except ImportError:
        return function
    return cast(_Function, numba.njit(cache=True, nogil=True)(function))


def small_kernel(function: _Function) -> _Function:
    """As `kernel`, but copied into the kernels that call it: for what runs once per field."""
    try:
        import numba
    except ImportError:
        return function
    compiled = numba.njit(cache=True, nogil=True, inline="always")(function)
    return cast(_Function, compiled)
