"""Pools of connections that wait for their next branch.

In: a function that connects, and one that checks whether a connection is alive. Out: connections,
the most recently used first; a connection that failed is closed and not used again.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, Protocol, TypeVar

from tallystick.services.driver_errors import ErrorKind, kind_of
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading, time
from tallystick.storage.signals import interrupt_in, uninterrupted


class Closable(Protocol):
    """A connection of a driver."""

    def close(self) -> None:
        """End the session."""
        ...


_Connection = TypeVar("_Connection", bound=Closable)
_Lent = TypeVar("_Lent")
_Awaited = TypeVar("_Awaited")
_Held = TypeVar("_Held")
_Begun = TypeVar("_Begun")

IDLE_MAX = 64


class Connections(Protocol[_Lent]):
    """What a resource needs of a pool; `Pool` is one."""

    def begin(self, start: Callable[[_Lent], _Begun]) -> _Begun:
        """Call ``start`` with a connection, which it keeps; see `Pool.begin`."""
        ...

    def borrow(self) -> contextlib.AbstractContextManager[_Lent]:
        """Lend a connection that is alive for a block; close it if the block fails."""
        ...

    def give(self, connection: _Lent, *, broken: bool = False) -> None:
        """Take back a connection that a branch kept; a broken one is closed."""
        ...

    def close(self) -> None:
        """Close the idle ones now and the others when they come back."""
        ...


class Idle(Uncopied, Generic[_Held]):
    """Idle connections, at most `IDLE_MAX`; safe for threads.

    ``close`` ends one without waiting.
    """

    def __init__(self, close: Callable[[_Held], object]) -> None:
        self._close = close
        self._idle: list[_Held] = []
        self._lock = threading.Lock()
        self._closed = False

    def take(self) -> _Held | None:
        """Return the one used last; None if there is none."""
        with self._lock:
            return self._idle.pop() if self._idle else None

    def give(self, connection: _Held, *, broken: bool = False) -> None:
        """Take a connection back; a broken one is closed."""
        with self._lock:
            if not (broken or self._closed) and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        self.discard(connection)

    def drop(self, connection: _Held) -> None:
        """Close a dead one and all idle ones, which are dead probably, too."""
        self.discard(connection)
        self._drop_idle()

    def close(self) -> None:
        """Close the idle ones now and the others when they come back."""
        self._closed = True
        self._drop_idle()

    def discard(self, connection: _Held) -> None:
        """Close a connection, whatever its driver raises."""
        with contextlib.suppress(Exception):  # a driver may raise anything from a dead one
            self._close(connection)

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            self.discard(connection)


class Pool(Uncopied, Generic[_Connection]):
    """Connections of threads."""

    def __init__(
        self,
        connect: Callable[[], _Connection],
        alive: Callable[[_Connection], bool] = lambda _: True,
    ) -> None:
        self._connect = connect
        self._alive = alive
        self._idle: Idle[_Connection] = Idle(lambda connection: connection.close())

    def give(self, connection: _Connection, *, broken: bool = False) -> None:
        """Take a connection back; a broken one is closed."""
        self._idle.give(connection, broken=broken)

    def close(self) -> None:
        """Close the idle ones now and the others when they come back."""
        self._idle.close()

    def take(self) -> _Connection:
        """Return an idle connection or a new one. Raises the driver's errors."""
        idle = self._idle.take()
        return self._connect() if idle is None else idle

    def begin(self, start: Callable[[_Connection], _Begun]) -> _Begun:
        """Call ``start`` with a connection, which it keeps, and return its result.

        It is called again with a new connection if an idle one turns out to be dead, so it must
        change nothing that outlives its session. A signal may interrupt it: then the connection is
        closed, and with it what ``start`` has begun.
        """
        handled = sys.exception()
        with uninterrupted:
            idle = self._idle.take()
            if idle is not None:
                try:
                    return uninterrupted.interruptible(start, idle)
                except BaseException as error:
                    transient = kind_of(error) is ErrorKind.TRANSIENT  # the connection is not dead
                    if transient or interrupt_in(error, handled) is not None:
                        self._idle.discard(idle)
                        raise
                    self._idle.drop(idle)  # if it was not the connection, it is raised again
            connection = uninterrupted.interruptible(self._connect)
            try:
                return uninterrupted.interruptible(start, connection)
            except BaseException:
                self._idle.discard(connection)
                raise

    @contextlib.contextmanager
    def borrow(self) -> Iterator[_Connection]:
        """Lend a connection that is alive for a block; close it if the block fails."""
        connection = self._idle.take()
        if connection is not None and not self._alive(connection):
            self._idle.drop(connection)
            connection = None
        connection = connection or self._connect()
        try:
            yield connection
        except BaseException:
            self._idle.discard(connection)
            raise
        self.give(connection)


class AsyncPool(Uncopied, Generic[_Awaited]):
    """Connections of tasks.

    Args:
        connect: makes a connection.
        close: ends one without waiting.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[_Awaited]], close: Callable[[_Awaited], object]
    ) -> None:
        self._connect = connect
        self._idle: Idle[_Awaited] = Idle(close)
        self.give = self._idle.give
        self.close = self._idle.close

    async def begin(self, start: Callable[[_Awaited], Awaitable[_Begun]]) -> _Begun:
        """Call ``start`` with a connection; see `Pool.begin`."""
        idle = self._idle.take()
        if idle is not None:
            try:
                return await start(idle)
            except Exception:
                self._idle.drop(idle)
            except BaseException:  # the task is cancelled, or out of time
                self._idle.discard(idle)
                raise
        connection = await self._connect()
        try:
            return await start(connection)
        except BaseException:
            self._idle.discard(connection)
            raise


class Turns(Uncopied):
    """A bound on the number of transactions of tasks that use connections at the same time.

    The others wait, in their order. Bounding each pool by itself would let transactions wait for
    each other in a circle: each has a connection that the next one wants. Safe for threads.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._lock = threading.Lock()

    async def take(self, deadline: float) -> None:
        """Wait for a turn.

        Args:
            deadline: moment of the monotonic clock.

        Raises:
            TimeoutError: there was none by then.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append(turn)
        try:
            seconds = None if deadline == math.inf else deadline - time.monotonic()
            async with asyncio.timeout(seconds):
                await asyncio.shield(turn)
        except BaseException:
            with self._lock:
                given = turn not in self._waiting
                if not given:
                    self._waiting.remove(turn)
            if given:
                self.give_back()
            raise

    def give_back(self) -> None:
        """End a turn; the task that has waited longest gets it."""
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                with contextlib.suppress(RuntimeError):  # its event loop is closed
                    turn.get_loop().call_soon_threadsafe(_set, turn)
                    return
            self._free += 1


def _set(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
