"""A transaction for each request of FastAPI or Starlette: a dependency, and a middleware.

In: a manager, asynchronous or not. Out: the transaction in which a request is handled, by whichever
threads and tasks: it is `current` in all of them. It is committed before the answer is sent, and
rolled back after an exception. Neither package is imported before it is used.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tallystick.errors import TransactionUsageError
from tallystick.services.transactions.aio import AsyncTransaction, AsyncTransactionManager
from tallystick.services.transactions.manager import TransactionManager
from tallystick.services.transactions.steps import drive_awaiting, one_step
from tallystick.services.transactions.transaction import OPEN, Joined, Transaction, inside

AnyManager = TransactionManager | AsyncTransactionManager
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

_FIRST_ERROR = 400
"""Of the statuses of answers: from here on the request has failed."""


def in_transaction(manager: AnyManager) -> Any:
    """Return a dependency of FastAPI whose value is the request's transaction.

    ``def order(tx=in_transaction(manager))``: committed when the handler has returned, before the
    answer is sent; rolled back if it raises, an ``HTTPException``, too. An answer with the status
    of an error that is returned, and not raised, is none: call ``tx.mark_rollback()``, or use
    `TransactionMiddleware`.

    Raises:
        ImportError: FastAPI is not installed.
        TransactionUsageError: this FastAPI (0.118 to 0.120) ends dependencies after the answer.
    """
    import fastapi  # the program that calls this has it

    async def transaction() -> AsyncIterator[Transaction | AsyncTransaction]:
        async with request_transaction(manager) as found:
            yield found

    if "scope" in inspect.signature(fastapi.Depends).parameters:
        return fastapi.Depends(transaction, scope="function")
    if tuple(map(int, fastapi.__version__.split(".")[:2])) >= (0, 118):
        raise TransactionUsageError(
            "this FastAPI would commit after the answer was sent",
            expected="0.121 or younger, or older than 0.118",
            found=fastapi.__version__,
            advice="Install another one, or use TransactionMiddleware",
        )
    return fastapi.Depends(transaction)


class TransactionMiddleware:
    """A middleware of ASGI: each request is handled in a transaction.

    ``application.add_middleware(TransactionMiddleware, manager=manager)``. The transaction is
    committed when the answer begins, and rolled back if its status is that of an error (400 and
    above), or if the handler raises. What a streamed answer does later is not in it.

    Args:
        app: the application.
        manager: whose transactions.
    """

    def __init__(self, app: Application, manager: AnyManager) -> None:
        self._app = app
        self._manager = manager

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle a request; what is no HTTP request is passed on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        async with request_transaction(self._manager) as transaction:

            async def end_and_send(message: Message) -> None:
                if message["type"] == "http.response.start" and transaction.status in OPEN:
                    failed = message["status"] >= _FIRST_ERROR
                    await end(transaction, commit=not failed)
                await send(message)

            await self._app(scope, receive, end_and_send)


@asynccontextmanager
async def request_transaction(
    manager: AnyManager,
) -> AsyncIterator[Transaction | AsyncTransaction]:
    """Open a block for all threads and tasks that handle a request; within one, join it.

    Its end runs in a worker thread if it would block the event loop, and to its end even if the
    task is cancelled.
    """
    outer = inside(manager._current)
    if outer is not None:
        assert isinstance(outer, Transaction | AsyncTransaction)
        with Joined(outer):
            yield outer
        return
    transaction = manager.begin()
    transaction._enter(None)
    try:
        yield transaction
        if transaction.status in OPEN:
            await end(transaction, commit=True)
    except BaseException as error:
        if transaction.status in OPEN:
            why = transaction._why_short()
            await end(transaction, commit=False)
            transaction._explain(error, why)
        raise
    finally:
        transaction._leave()


async def end(transaction: Transaction | AsyncTransaction, *, commit: bool) -> None:
    """Commit or roll back, without blocking the event loop."""
    if isinstance(transaction, AsyncTransaction):
        await (transaction.commit() if commit else transaction.rollback())
        return
    work = transaction.commit if commit else transaction.rollback
    await drive_awaiting(one_step(partial(asyncio.to_thread, work)))
