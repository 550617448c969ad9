"""Handlers of requests: functions whose calls are transactions, once per key, repeated on conflict.

In: a function, and how its transactions begin. Out: the same function, for threads (`decorate`) and
for tasks (`decorate_task`).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar

from tallystick.arguments import integer
from tallystick.callables import innermost, is_lazy, name_of, require_value
from tallystick.errors import BusyError, HeuristicError, InDoubtError, TransactionUsageError
from tallystick.services.driver_errors import is_conflict
from tallystick.services.transactions.messaging.keys import Claim, IdempotencyKey, KeyedHandler
from tallystick.services.transactions.messaging.retry import Retry
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
        joined: returns the block of a call within a transaction of the manager; None outside.
        key: the key of a request, if any.
        retry: the number of repetitions after a conflict, or a `Retry`.
        resources: of the manager, by name.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        begin: Callable[[], Any],
        joined: Callable[[], Any],
        key: IdempotencyKey | None,
        retry: Retry | int,
        resources: Mapping[str, Resource],
    ) -> None:
        self.function = function
        self.begin = begin
        if not isinstance(key, IdempotencyKey | None):
            raise TransactionUsageError(
                f"a key of type {type(key).__name__}", expected="an IdempotencyKey, or None"
            )
        if not isinstance(retry, Retry):
            retry = Retry(integer(retry, "retry", 0, sys.maxsize))
        self.retry = retry
        self._joined = joined
        self._keyed = None if key is None else KeyedHandler(key, function, resources)

    def joined(self) -> Any:
        """Return the block of a call that takes part in a transaction which is running, or None.

        Raises:
            TransactionUsageError: the function has a key.
        """
        joined = self._joined()
        if joined is not None and self._keyed is not None:
            raise TransactionUsageError(
                f"{name_of(self.function)} has a key, and a transaction is running here",
                advice="Call it outside: it must begin and end its transaction itself",
            )
        return joined

    def claim(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Claim | None:
        """Return the claim of a call's key; None without keys."""
        return None if self._keyed is None else self._keyed.request(args, kwargs)

    def decode(self, text: str) -> Any:
        """Return the outcome that was kept."""
        assert self._keyed is not None
        return require_value(self._keyed.key.decode(text), "decode of a key")

    def once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one transaction in this thread."""
        claim = self.claim(args, kwargs)
        with self.begin() as transaction:
            if claim is None:
                outcome = self.function(*args, **kwargs)
                return require_value(outcome, name_of(self.function))
            ask = ThreadAsk(transaction, claim.name)
            known = drive(claim.take(ask))
            if known is not None:
                transaction.rollback()
                return self.decode(known)
            outcome = require_value(self.function(*args, **kwargs), name_of(self.function))
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
        TransactionUsageError: it is such a function, a class, or cannot be called.
    """
    given: object = function
    if not callable(given) and not isinstance(given, classmethod):
        raise TransactionUsageError(
            f"an object of type {type(function).__name__} is decorated", expected="a function"
        )
    made = innermost(function)
    if inspect.isclass(made) or isinstance(function, classmethod):
        raise TransactionUsageError(
            f"{name_of(function)} is a class, or a method of one",
            expected="a function",
            advice="Decorate the functions in it, below @classmethod",
        )
    if is_lazy(function, awaited=awaited):
        raise _lazy(function)


def _lazy(function: Callable[..., object]) -> TransactionUsageError:
    return TransactionUsageError(
        f"a call of {name_of(function)} returns before its body runs",
        expected="an ordinary function",
        advice="Use AsyncTransactionManager.transactional for a coroutine function; within a "
        "generator write 'with manager.begin()'",
    )


def decorate(
    handler: Handler, function: Callable[_Parameters, _Result]
) -> Callable[_Parameters, _Result]:
    """Return the function of a handler for threads."""

    @functools.wraps(function)
    def call(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        if (joined := handler.joined()) is not None:
            with joined:
                return require_value(function(*args, **kwargs), name_of(function))
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
        if (joined := handler.joined()) is not None:
            async with joined:
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
    """Return True for a conflict of a transaction of which nothing was kept, as is proved.

    What a joined call raised is the cause of the error of the whole.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, InDoubtError | HeuristicError | BusyError):
            return False
        cause = cause.__cause__
    return is_conflict(error)
