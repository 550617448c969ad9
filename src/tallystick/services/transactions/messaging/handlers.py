"""Handlers of requests: functions whose calls are transactions, once per key, repeated on conflict.

In: a function, and how its transactions begin. Out: the same function, for threads (`decorate`) and
for tasks (`decorate_task`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

from tallystick.errors import HeuristicError, InDoubtError, TransactionUsageError
from tallystick.services.transactions.messaging.keys import Claim, IdempotencyKey, KeyedHandler
from tallystick.services.transactions.messaging.retry import Retry, is_conflict
from tallystick.services.transactions.messaging.statements import TaskAsk, ThreadAsk
from tallystick.services.transactions.resource import Resource
from tallystick.services.transactions.steps import drive, follow
from tallystick.storage.scheduling import time

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class Handler:
    """What the calls of one decorated function share.

    Args:
        function: the function.
        begin: begins a transaction.
        is_running: returns True within a transaction of the manager, which a call joins.
        key: the key of a request, if any.
        retry: the number of repetitions after a conflict, or a `Retry`.
        resources: of the manager, by name.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        begin: Callable[[], Any],
        is_running: Callable[[], bool],
        key: IdempotencyKey | None,
        retry: Retry | int,
        resources: Mapping[str, Resource],
    ) -> None:
        self.function = function
        self.begin = begin
        self.retry = Retry(retry) if isinstance(retry, int) else retry
        self._is_running = is_running
        self._keyed = None if key is None else KeyedHandler(key, function, resources)

    def joins(self) -> bool:
        """Return True for a call that takes part in a transaction which is running.

        Raises:
            TransactionUsageError: the function has a key.
        """
        if not self._is_running():
            return False
        if self._keyed is not None:
            raise TransactionUsageError(
                f"{_name(self.function)} has a key, and a transaction is running here",
                advice="Call it outside: it must begin and end its transaction itself",
            )
        return True

    def claim(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Claim | None:
        """Return the claim of a call's key; None without keys."""
        return None if self._keyed is None else self._keyed.request(args, kwargs)

    def decode(self, text: str) -> Any:
        """Return the outcome that was kept."""
        assert self._keyed is not None
        return self._keyed.key.decode(text)

    def once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one transaction in this thread."""
        claim = self.claim(args, kwargs)
        with self.begin() as transaction:
            if claim is None:
                outcome = self.function(*args, **kwargs)
                _refuse_coroutine(self.function, outcome)
                return outcome
            ask = ThreadAsk(transaction, claim.name)
            known = drive(claim.take(ask))
            if known is not None:
                transaction.rollback()
                return self.decode(known)
            outcome = self.function(*args, **kwargs)
            drive(claim.keep(ask, outcome))
            return outcome

    async def once_awaiting(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one transaction of this task."""
        claim = self.claim(args, kwargs)
        async with self.begin() as transaction:
            if claim is None:
                return await self.function(*args, **kwargs)
            ask = TaskAsk(transaction, claim.name)
            known = await follow(claim.take(ask))
            if known is not None:
                await transaction.rollback()
                return self.decode(known)
            outcome = await self.function(*args, **kwargs)
            await follow(claim.keep(ask, outcome))
            return outcome


def refuse_lazy(function: Callable[..., object], *, awaited: bool = False) -> None:
    """Refuse a function whose calls return before its body runs.

    Args:
        function: what is to be decorated.
        awaited: whether the calls are awaited, as coroutines have to be.

    Raises:
        TransactionUsageError: it is such a function, or a class.
    """
    made = function
    while isinstance(made, functools.partial | staticmethod):
        made = made.func if isinstance(made, functools.partial) else made.__func__
    if inspect.isclass(made) or isinstance(made, classmethod):
        raise TransactionUsageError(
            f"{_name(function)} is a class, or a method of one",
            expected="a function",
            advice="Decorate the functions in it, below @classmethod",
        )
    if not inspect.isroutine(made):
        made = type(made).__call__
    if (
        inspect.isgeneratorfunction(made)
        or inspect.isasyncgenfunction(made)
        or (inspect.iscoroutinefunction(made) and not awaited)
        or getattr(made, "__code__", None) in _CONTEXT_MANAGERS
    ):
        raise _lazy(function)


def _plain() -> Iterator[None]:
    """Make context managers, whose code is that of all others."""
    yield


async def _plain_awaited() -> AsyncIterator[None]:
    yield


_CONTEXT_MANAGERS = (
    contextlib.contextmanager(_plain).__code__,
    contextlib.asynccontextmanager(_plain_awaited).__code__,
)


def _refuse_coroutine(function: Callable[..., object], outcome: object) -> None:
    """Raise `TransactionUsageError` for a result that has to be awaited."""
    if inspect.iscoroutine(outcome):
        outcome.close()
        raise _lazy(function)


def _lazy(function: Callable[..., object]) -> TransactionUsageError:
    return TransactionUsageError(
        f"a call of {_name(function)} returns before its body runs",
        expected="an ordinary function",
        advice="Use AsyncTransactionManager.transactional for a coroutine function; within a "
        "generator write 'with manager.begin()'",
    )


def _name(function: object) -> str:
    return repr(getattr(function, "__name__", None) or type(function).__name__)


def decorate(
    handler: Handler, function: Callable[_Parameters, _Result]
) -> Callable[_Parameters, _Result]:
    """Return the function of a handler for threads."""

    @functools.wraps(function)
    def call(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        if handler.joins():
            return function(*args, **kwargs)
        for pause in handler.retry.pauses():
            try:
                result: _Result = handler.once(args, kwargs)
                return result
            except Exception as error:
                if not _may_repeat(error):
                    raise
            time.sleep(pause)
        last: _Result = handler.once(args, kwargs)
        return last

    return call


def decorate_task(
    handler: Handler, function: Callable[_Parameters, Awaitable[_Result]]
) -> Callable[_Parameters, Coroutine[Any, Any, _Result]]:
    """Return the coroutine function of a handler for tasks."""

    @functools.wraps(function)
    async def call(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        if handler.joins():
            return await function(*args, **kwargs)
        for pause in handler.retry.pauses():
            try:
                result: _Result = await handler.once_awaiting(args, kwargs)
                return result
            except Exception as error:
                if not _may_repeat(error):
                    raise
            await asyncio.sleep(pause)
        last: _Result = await handler.once_awaiting(args, kwargs)
        return last

    return call


def _may_repeat(error: Exception) -> bool:
    """Return True for a conflict of a transaction of which nothing was kept, as is proved."""
    return not isinstance(error, InDoubtError | HeuristicError) and is_conflict(error)
