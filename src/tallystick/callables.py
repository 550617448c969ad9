"""Functions of the application that are called and never awaited.

In: a function, when it is given, or what a call of it has returned. Out: `TransactionUsageError`
where its body would run after the call, or never: nothing may then be taken for done.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from tallystick.errors import TransactionUsageError
from tallystick.printable import printable

_Given = TypeVar("_Given")

_RUN = (
    "Run the coroutine to its end within it: asyncio.run(...), or "
    "asyncio.run_coroutine_threadsafe(..., loop).result()"
)

_MARK = getattr(asyncio.coroutines, "_is_coroutine", None)
"""What asyncio, mocks and Cython put on functions that return coroutines."""


def require_plain(function: _Given, what: str, *, awaited: bool = False) -> _Given:
    """Return a function whose body runs when it is called.

    Args:
        function: what is going to be called; None passes.
        what: what it is for, such as ``deliver of a relay``.
        awaited: whether what the calls return is awaited.

    Raises:
        TransactionUsageError: its calls return before its body runs.
    """
    if function is not None and is_lazy(function, awaited=awaited):
        raise TransactionUsageError(
            f"{what} is called and not awaited, and a call of {name_of(function)} returns before "
            "its body runs",
            expected="an ordinary function",
            advice=_RUN,
        )
    return function


def require_plain_calls(thing: _Given, names: Iterable[str], what: str) -> _Given:
    """Return an object whose methods of these names are not awaited; see `require_plain`."""
    for name in names:
        require_plain(getattr(thing, name, None), f"{name} of {what}")
    return thing


def checked(function: _Given, what: str) -> _Given:
    """Return a function that calls another one and refuses what has to be awaited; None for None.

    Raises:
        TypeError: it cannot be called.
        TransactionUsageError: see `require_plain` and `require_done`.
    """
    if function is None:
        return function
    if not callable(function):
        raise TypeError(
            f"{what} is of type {printable(type(function).__name__)}; expected a function"
        )
    taken = cast(Callable[..., Any], require_plain(function, what))

    @functools.wraps(taken)  # it is shown, and found again, under its own name
    def call(*args: Any, **kwargs: Any) -> Any:
        return require_done(taken(*args, **kwargs), what)

    return cast(_Given, call)


def require_done(result: _Given, what: str) -> _Given:
    """Return what a call has returned, if the work of the call is done.

    Raises:
        TransactionUsageError: it has to be awaited, waited for or iterated over.
    """
    if isinstance(result, _LATER):
        raise _not_done(result, what)
    return result if result is None else require_value(result, what)


def require_value(result: _Given, what: str) -> _Given:
    """Return what a call has returned; raise `TransactionUsageError` if it has to be awaited."""
    if hasattr(type(result), "__await__") or inspect.isawaitable(result):
        raise _not_done(result, what)
    return result


def _not_done(result: object, what: str) -> TransactionUsageError:
    """Return the error, and close the result, so that Python does not warn of it."""
    if isinstance(result, asyncio.Future):
        with contextlib.suppress(RuntimeError):  # its loop is closed
            result.get_loop().call_soon_threadsafe(result.cancel)
    elif inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
    return TransactionUsageError(
        f"{what} returned a {type(result).__name__}: its work is not done",
        expected="a function that returns after its work",
        advice=_RUN,
    )


def is_lazy(function: Any, *, awaited: bool = False) -> bool:
    """Return True for a function whose calls return before its body runs.

    A wrapper is judged by itself: it may run the coroutine function that it wraps to its end.

    Args:
        function: a function, a method, a partial of one, or an object that can be called.
        awaited: whether the calls are awaited, as coroutines have to be.
    """
    made = innermost(function)
    if not awaited and getattr(made, "_is_coroutine", None) is _MARK is not None:
        return True
    if not (inspect.isroutine(made) or inspect.isclass(made)):
        if inspect.iscoroutinefunction(made):  # an asynchronous mock
            return not awaited
        made = innermost(getattr(type(made), "__call__", made))  # noqa: B004 - to look at it
    return (
        inspect.isgeneratorfunction(made)
        or inspect.isasyncgenfunction(made)
        or (inspect.iscoroutinefunction(made) and not awaited)
        or getattr(made, "__code__", None) in _CONTEXT_MANAGERS
    )


def is_coroutine_function(function: Any) -> bool:
    """Return True for a function whose calls return coroutines, in whatever it is wrapped."""
    return is_lazy(function) and not is_lazy(function, awaited=True)


def innermost(function: Any) -> Any:
    """Return the function in partials, bound, static and class methods."""
    while True:
        if isinstance(function, functools.partial | functools.partialmethod):
            function = function.func
        elif isinstance(function, staticmethod | classmethod) or inspect.ismethod(function):
            function = function.__func__
        else:
            return function


def name_of(function: object) -> str:
    """Return the name of a function, or of the class of what is called, in quotes."""
    return repr(getattr(function, "__name__", None) or type(function).__name__)


def _plain() -> Iterator[None]:
    """Make context managers, whose code is that of all others."""
    yield


async def _plain_awaited() -> AsyncIterator[None]:
    yield


_CONTEXT_MANAGERS = (
    contextlib.contextmanager(_plain).__code__,
    contextlib.asynccontextmanager(_plain_awaited).__code__,
)
_LATER = (
    type(_plain()),
    type(_plain_awaited()),
    contextlib._GeneratorContextManager,
    contextlib._AsyncGeneratorContextManager,
    Future,
)
"""What a call returns whose work comes later, or never."""
