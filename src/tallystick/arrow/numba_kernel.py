"""Plain Python functions that run as machine code where numba is installed.

In: a function over NumPy arrays and integers. Out: the same function, compiled lazily at
its first call and cached on disk, or as it is where numba is absent.

The cache is shared by processes that start together, as the workers of a job do. Numba numbers its
files by an index that it reads first and writes later; so of two processes that compile one
function for different types each can take the same number, and one's code stands under the other's
types for good. Here every file has a name of its own; at worst the index then lacks what another
process has just compiled.

Compiled functions do not count references: with it every call costs two atomic operations for
each array that it is given, more than most of them take in all. So they make no arrays and
return none; they fill those that their caller holds.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Loaded = TypeVar("_Loaded")
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}


def kernel(function: _Function) -> _Function:
    """Compile ``function`` with numba (no Python objects, the interpreter lock released)."""
    try:
        import numba
    except ImportError:
        return function
    return cast(_Function, _with_own_files(numba.njit(**_OPTIONS)(function)))


def small_kernel(function: _Function) -> _Function:
    """Compile like `kernel`, and copy into the calling kernels: for what runs once per field."""
    try:
        import numba
    except ImportError:
        return function
    return cast(_Function, _with_own_files(numba.njit(inline="always", **_OPTIONS)(function)))


def _with_own_files(compiled: Any) -> Any:
    """Have the files of this function's cache named so that no two processes share a name."""
    files = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if files is not None:  # compilation is not switched off
        by_number = files._data_name
        files._data_name = lambda number: f"{uuid.uuid4().hex}.{by_number(number)}"
    return compiled


def pays(work: int, loaded_from: int, compiled_from: int) -> bool:
    """Return True if there is enough ``work`` for compiled code to save time.

    ``loaded_from`` is the least such work where numba is loaded, ``compiled_from`` where it is
    not; the unit is the caller's.
    """
    return work >= (loaded_from if "numba" in sys.modules else compiled_from)


def loaded_compiled(load: Callable[[], _Loaded]) -> _Loaded | None:
    """Return what ``load`` imports from a module of kernels.

    None without a compiler, where kernels are slower than reading record by record.
    """
    if find_spec("numba") is None:
        return None
    try:
        return load()
    except (ImportError, RuntimeError):
        return None  # numba refuses where it finds no folder for what it compiles
