"""Plain Python functions that run as machine code where numba is installed.

In: a function over NumPy arrays and integers. Out: the same function, compiled lazily at
its first call and cached on disk, or as it is where numba is absent.

The cache is shared by processes that start together, as the workers of a job do. Numba numbers its
files by an index that it reads first and writes later; so of two processes that compile one
function for different types each can take the same number, and one's code stands under the other's
types for good. Here every file has a name of its own, and what one process compiles the others
wait for and load, by a lock on the source file, so that thirty workers on a new machine compile a
kernel once. Where no file can be locked, or the wait is longer than a minute, each compiles for
itself, and at worst the index lacks what another process has just compiled.

Where numba finds no folder for its cache, as for a system user whose home cannot be written, a
folder of this user's own among the temporary ones takes it. A cache is code: it is neither kept in
nor loaded from a folder that another user could write to. What cannot be kept is compiled by each
process anew.

A lazy kernel is plain Python until `compiled_of` compiles it, with all that it calls: so a module
of them loads neither NumPy nor numba, and one function serves short inputs and long ones.

Compiled functions do not count references: with it every call costs two atomic operations for
each array that it is given, more than most of them take in all. So compiled functions
neither make nor return arrays; they fill arrays of their caller.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

from tallystick.posix import fcntl
from tallystick.printable import logger

_LOGGER = logger("tallystick.compiling")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False}
_SMALL: dict[str, Any] = _OPTIONS | {"inline": "always"}
_OPTIONS_AT, _TWIN_AT = "_kernel_options", "_kernel_twin"
"""Attributes of lazy kernels, and of functions that have a compiled twin."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LONGEST_WAIT_S, _POLL_S = 60.0, 0.05

_locked: set[str] = set()
"""Source files that this process has locked, to compile some of their functions."""

_listeners: list[Callable[[str], None]] = []
_said: set[str] = set()


@contextmanager
def noticed(tell: Callable[[str], None]) -> Iterator[None]:
    """Tell, once in a process, that numba is compiling, or that there is none.

    Args:
        tell: takes a sentence for a person; each comes once in a process.
    """
    _listeners.append(tell)
    try:
        yield
    finally:
        _listeners.remove(tell)


def _say(text: str) -> None:
    """Tell it once in this process: in the log, and to those who have asked for it."""
    if text not in _said:
        _said.add(text)
        _LOGGER.info(text)
        for tell in [*_listeners]:
            tell(text)


def kernel(function: _Function) -> _Function:
    """Compile ``function`` with numba (no Python objects, the interpreter lock released)."""
    return _compiled(function, _OPTIONS)


def small_kernel(function: _Function) -> _Function:
    """Compile like `kernel`, and copy into the calling kernels: for what runs once per field."""
    return _compiled(function, _SMALL)


def lazy_kernel(function: _Function) -> _Function:
    """Mark a kernel that is plain Python until `compiled_of` compiles it."""
    setattr(function, _OPTIONS_AT, _OPTIONS)
    return function


def lazy_small_kernel(function: _Function) -> _Function:
    """Mark like `lazy_kernel` what is a `small_kernel` when it is compiled."""
    setattr(function, _OPTIONS_AT, _SMALL)
    return function


def has_twin(function: _Function, module: str, name: str) -> _Function:
    """Mark a function: compiled kernels call ``name`` of ``module`` in its place."""
    setattr(function, _TWIN_AT, (module, name))
    return function


# One compiled function for each, as several kernels call the same small ones.
@cache
def compiled_of(function: Any) -> Any:
    """Return a lazy kernel compiled, with the lazy kernels and the twins that it calls.

    It takes NumPy arrays in place of buffers.
    """
    if (twin := getattr(function, _TWIN_AT, None)) is not None:
        return compiled_of(getattr(import_module(twin[0]), twin[1]))
    if (options := getattr(function, _OPTIONS_AT, None)) is None:
        return function
    # A compiled function finds what it calls among its globals, so it gets some of its own.
    names = dict(function.__globals__)
    for name in function.__code__.co_names:
        if isinstance(called := names.get(name), FunctionType):
            names[name] = compiled_of(called)
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    return _compiled(made, options)


def _compiled(function: _Function, options: dict[str, Any]) -> _Function:
    try:
        import numba
    except ImportError:
        return function
    compiled = numba.njit(**options)(function)
    if compiled is not function:  # compilation is not switched off
        _enable_cache(compiled)
        # After the cache was made safe: code that cannot be loaded counts as absent, and is
        # announced.
        _announce(compiled._cache, function.__module__)
    return cast(_Function, compiled)


def _announce(kept: Any, module: str) -> None:
    """Have a function that is not among the kept ones announced before it is compiled."""
    load = kept.load_overload

    def loaded(*arguments: Any) -> Any:
        code = load(*arguments)
        if code is None:
            _say(f"compiling {module} for this machine, once; it takes some seconds")
        return code

    kept.load_overload = loaded


def _enable_cache(compiled: Any) -> None:
    """Have the code kept in numba's folder, else in `_own_folder`, else nowhere."""
    try:
        compiled.enable_caching()
    except RuntimeError:  # numba finds no folder that it can write to
        folder = _own_folder()
        if folder is None:
            return
        with _cache_in(folder), suppress(RuntimeError):
            compiled.enable_caching()
    _make_cache_safe(compiled)


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    """Have numba look for caches in ``folder`` first."""
    import numba

    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def _own_folder() -> Path | None:
    """Return a temporary folder that only this user can write to; None where there is none."""
    if sys.platform == "win32":
        return None
    try:
        parent = Path(tempfile.gettempdir())
        folder = parent / f"tallystick-numba-{os.geteuid()}"
        with suppress(FileExistsError):
            folder.mkdir(mode=stat.S_IRWXU)
        state, around = folder.lstat(), parent.stat().st_mode
    except OSError:
        return None
    own = stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid()
    closed = not state.st_mode & _OTHERS_WRITE
    # Without the sticky bit, others that can write to the parent could put a folder of theirs here.
    fixed = around & stat.S_ISVTX or not around & _OTHERS_WRITE
    return folder if own and closed and fixed else None


def _make_cache_safe(compiled: Any) -> None:
    """Have no two processes share a name of a file, and no call fail because of the cache."""
    cache = compiled._cache
    files = getattr(cache, "_cache_file", None)
    if files is None:  # numba has found no folder
        return
    by_number = files._data_name
    files._data_name = lambda number: f"{uuid.uuid4().hex}.{by_number(number)}"
    cache.load_overload = _or_none(cache.load_overload)
    cache.save_overload = _or_none(cache.save_overload)
    _compile_once(compiled)


def _compile_once(compiled: Any) -> None:
    """Have what is not kept compiled by one process at a time; the next one finds it kept."""
    from numba.core.compiler_lock import global_compiler_lock

    load, compile_it = compiled._cache.load_overload, compiled.compile
    source = compiled.py_func.__code__.co_filename
    turn = ExitStack()

    def loaded(*arguments: Any) -> Any:
        code = load(*arguments)
        if code is None:
            turn.enter_context(_alone_with(source))
            code = load(*arguments)
        return code

    def compiled_in_turn(signature: Any) -> Any:
        # A thread that has the file waits for no other one's compiler.
        with global_compiler_lock, turn:
            return compile_it(signature)

    compiled._cache.load_overload, compiled.compile = loaded, compiled_in_turn


@contextmanager
def _alone_with(source: str) -> Iterator[None]:
    """Hold the lock of a source file; go on without it where there is none, or after a minute."""
    if source in _locked:  # a function of this file calls another one
        yield
        return
    try:
        descriptor = os.open(source, os.O_RDONLY)
    except OSError:  # within an archive
        yield
        return
    _locked.add(source)
    try:
        _lock(descriptor)
        yield
    finally:
        _locked.discard(source)
        # Not only closed: a child that was forked in the meantime has the descriptor, too.
        with suppress(OSError, AttributeError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    end = time.monotonic() + _LONGEST_WAIT_S
    while fcntl is not None and time.monotonic() < end:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_POLL_S)
        except OSError:  # a file system without locks
            return
        else:
            return


def _or_none(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``step``, which then returns None where a file is damaged, closed or too large."""

    def tried(*arguments: Any) -> Any:
        try:
            return step(*arguments)
        except Exception:  # unpickling a cut file can raise any
            return None

    return tried


def pays(work: int, loaded_from: int, compiled_from: int) -> bool:
    """Return True if there is enough ``work`` for compiled code to save time.

    ``loaded_from`` is the least such work where numba is loaded, ``compiled_from`` where it is
    not; the unit is the caller's.
    """
    return work >= (loaded_from if "numba" in sys.modules else compiled_from)


def has_compiler() -> bool:
    """Return whether numba is installed, with Arrow; if it is not, say once what it would bring.

    Without a compiler kernels are slower than reading record by record.
    """
    found = all(find_spec(name) is not None for name in ("numba", "pyarrow"))
    if not found:
        _say("long logs are read 10 to 40 times as fast with: pip install 'tallystick[arrow]'")
    return found
