"""Comparison of a class that blocks with its asynchronous face."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any


def public_names(thing: object) -> set[str]:
    """Methods and properties of a class, or attributes of an object, that users may use."""
    return {name for name in dir(thing) if not name.startswith("_")}


def differences(blocking: type, asynchronous: type) -> dict[str, str]:
    """What the asynchronous class lacks, or has with other parameters, by name."""
    found = {}
    for name in public_names(blocking):
        theirs = inspect.getattr_static(asynchronous, name, None)
        if theirs is None:
            found[name] = "missing"
        elif (one := _parameters(blocking, name)) != (other := _parameters(asynchronous, name)):
            found[name] = f"{one} != {other}"
    return found


def _parameters(owner: type, name: str) -> Any:
    member = inspect.getattr_static(owner, name)
    if isinstance(member, property) or not callable(getattr(owner, name)):
        return "property"
    parameters = inspect.signature(getattr(owner, name)).parameters.values()
    return [(one.name, one.kind, one.default) for one in parameters]


async def outcome(thing: Any, name: str, arguments: tuple[Any, ...]) -> str:
    """How a call ends, with its result waited for: "value" or the name of the error's class.

    A class that blocks is called in a thread, so that one function serves both.
    """
    try:
        answer = getattr(thing, name)
        if callable(answer):
            answer = answer(*arguments)
        if isinstance(answer, Iterator):
            await asyncio.to_thread(list, answer)
        elif isinstance(answer, AsyncIterator):
            _ = [one async for one in answer]
        elif hasattr(answer, "__await__"):
            await answer
    except Exception as error:
        return type(error).__name__
    return "value"


class RecordedCalls:
    """A file system, or a file of it, whose calls are recorded with the thread that makes them."""

    def __init__(self, inner: Any, calls: list[tuple[int, str]]) -> None:
        self._inner = inner
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **settings: Any) -> Any:
            self._calls.append((threading.get_ident(), name))
            answer = found(*arguments, **settings)
            return (
                RecordedCalls(answer, self._calls) if name in ("open", "create", "hold") else answer
            )

        return call
