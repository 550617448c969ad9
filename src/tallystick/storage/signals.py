"""Keep signal handlers from running between two statements that belong together.

In: a block of work. Out: the same block; the handlers of signals that arrive during it run at its
end, as if the signals had arrived then.

CPython runs a handler that was written in Python in the main thread, between two bytecodes: as a
function starts, after a call, as a loop goes round. What it raises comes out of that place:
`KeyboardInterrupt`, `SystemExit`, whatever a time limit raises. So a block in which statements
belong together begins with ``with uninterrupted:``. It replaces every such handler by one that
takes a note. Blocks can be nested: the outermost one counts. They are short. Where such a block has
to wait for other threads, `Bell.wait` and the like let one interrupt through.

`RecursionError` comes out of any call, too, once a program has used up its stack. So a block that
begins where more than half of it is used has room for `ROOM` more calls: the limit on recursion is
raised until it ends. What it calls of the application has no more room than without it.

Other threads, and subinterpreters, run no handlers: there a block costs the look how much of the
stack is used, at most. In the main thread it costs the compiled core half a microsecond, and its
twin `Uninterrupted` a few: each block looks at all handlers, as nobody tells when one of them
changes.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
from collections.abc import Callable
from dis import opmap
from functools import partial
from itertools import compress, repeat
from types import FrameType, FunctionType, TracebackType
from typing import Any, TypeVar, cast

from tallystick.core import CORE
from tallystick.posix import after_fork_in_child
from tallystick.storage.scheduling import threading, time

# Some calls with every commit: without its conversions to enums the module is many times as fast.
# Where an interpreter has no such layer, the public module does.
try:
    _fast: Any = importlib.import_module("_signal")
except ImportError:
    _fast = signal
_signal, _getsignal = _fast.signal, _fast.getsignal
_NUMBERS = tuple(sorted(map(int, signal.valid_signals())))
_AFTER_YIELD_FROM = 2
ROOM = 200
"""Calls, one in the other, that a block can make in any case."""
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Result = TypeVar("_Result")


def starts_unchecked(function: _Function) -> _Function:
    """Have no signal handler run as the function starts, before its first statement.

    For what has to run, such as an ``__exit__``: with `uninterrupted` as its first statement it
    cannot be interrupted at all. The instruction ``RESUME`` looks for signals in all functions but
    in those that go on after a ``yield from`` (see `dis`), and so it is told that this is one.
    """
    plain = cast(FunctionType, function)
    code = bytearray(plain.__code__.co_code)
    resume = next((at for at in range(0, len(code), 2) if code[at] == opmap.get("RESUME")), None)
    if resume is not None:
        code[resume + 1] = code[resume + 1] & ~3 | _AFTER_YIELD_FROM
        plain.__code__ = plain.__code__.replace(co_code=bytes(code))
    return function


def _is_deeper(frames: int) -> bool:
    """Return whether there are more frames; calls of C functions, which may count, it misses."""
    try:
        sys._getframe(frames + 1)
    except ValueError:
        return False
    return True


class Uninterrupted:
    """The block in which no signal handler runs: ``with uninterrupted:``; there is one object.

    Whatever is raised at its end was raised by a handler: the block itself has run to its end.
    """

    __slots__ = (
        "_catcher", "_caught", "_depth", "_handlers", "_known", "_letting", "_limit", "_main",
        "_numbers", "_raised", "_replaced", "_rooms", "_swapped",
    )  # fmt: skip

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        """The thread that runs handlers; None if this interpreter runs none."""
        self._depth = 0
        """Of blocks that are open; 0 also while signals are let through."""
        self._letting = 0
        """Calls, one in the other, that let signals through."""
        self._handlers: list[Any] = []
        """Every handler at the last look, to see whether one has changed."""
        self._numbers: tuple[int, ...] = ()
        """The signals whose handlers were written in Python, at the last look."""
        self._known: dict[int, Any] = {}
        """The last handler of each: what was called in a block may put ours back later."""
        self._replaced: list[Any] = []
        """The handlers that the block has replaced, in the order of the numbers."""
        self._swapped = False
        self._caught: tuple[int, ...] = ()
        self._raised: tuple[BaseException, ...] = ()
        """What handlers have raised as the block was entered or left."""
        self._catcher = self._catch
        self._limit = 0
        """On recursion, as it was before it was raised; 0 if it is not raised."""
        self._rooms: dict[int, int] = {}
        """Threads for whose blocks it is raised, and how many of these are open, one in the other.

        In the main thread the outermost one counts, which may be tried again."""

    # No statement here between two that belong together calls anything or loops: there are no
    # other places for a handler to run.

    @starts_unchecked
    def __enter__(self) -> None:
        # A signal may have arrived just before: its handler runs here, and this is tried again.
        try:
            self._enter()
        except RecursionError:  # no call is left for it, and none was made
            raise
        except BaseException as first:
            self._raised += (first,)
            try:
                self._enter()
            except BaseException as second:
                self._raised += (second,)
                self._enter()

    def _enter(self) -> None:
        if (thread := threading.get_ident()) != self._main:
            self._make_room(thread, self._rooms.get(thread, 0) + 1)
            return
        if self._depth or self._letting:
            self._depth += 1
            return
        self._make_room(thread, 1)
        if self._swapped:
            self._restore()
        handlers = [*map(_getsignal, _NUMBERS)]
        if handlers != self._handlers:
            self._numbers = tuple(compress(_NUMBERS, map(callable, handlers)))
            found = zip(_NUMBERS, handlers, strict=True)
            self._known.update([one for one in found if one[1] is not self._catcher])
            self._handlers = handlers
        self._replaced, self._swapped, self._depth = [], True, 1
        try:
            self._replaced.extend(map(_signal, self._numbers, repeat(self._catcher)))
        except BaseException as error:
            self._depth = 0
            # Raised by a handler, which has a frame of its own, or for a subinterpreter.
            trace = error.__traceback__
            if not isinstance(error, ValueError) or trace is None or trace.tb_next is not None:
                raise
            self._main = None

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if not self._depth:
            self._handler_of(number)(number, frame)
        elif number not in self._caught:
            self._caught += (number,)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if (thread := threading.get_ident()) == self._main:
            if self._depth > 1 or self._letting:
                self._depth -= 1
                if not self._depth and self._caught:
                    self._deliver()
            else:
                self._leave()
        elif self._limit:
            self._end_room(thread)

    def _leave(self) -> None:
        # A handler that is in force again may run while the others are not yet.
        try:
            self._restore()
        except BaseException as first:
            self._raised += (first,)
            try:
                self._restore()
            except BaseException as second:
                self._raised += (second,)
                self._restore()
        if self._caught or self._raised:
            self._deliver()

    def _restore(self) -> None:
        self._depth = 1
        before = [*map(_signal, self._numbers, self._replaced)]
        if before.count(self._catcher) < len(before):
            self._keep_newer(before)
        if self._limit:
            self._end_room(threading.get_ident())
        self._swapped = False
        self._depth = 0

    # In the other threads each block looks, as the outermost one is not known there.

    def _make_room(self, thread: int, blocks: int) -> None:
        if thread not in self._rooms and not _is_deeper(sys.getrecursionlimit() // 2):
            return
        self._rooms[thread] = blocks
        if not self._limit:
            self._limit = sys.getrecursionlimit()
            sys.setrecursionlimit(self._limit + ROOM)

    def _end_room(self, thread: int) -> None:
        blocks = self._rooms.pop(thread, 1) - 1
        if blocks:
            self._rooms[thread] = blocks
        elif not self._rooms:
            if sys.getrecursionlimit() == self._limit + ROOM:
                try:
                    sys.setrecursionlimit(self._limit)
                except RecursionError:  # not possible this deep: a later block does it
                    return
            self._limit = 0

    def _keep_newer(self, before: list[Any]) -> None:
        """Put handlers back that were installed during the block."""
        for number, handler, newer in zip(self._numbers, self._replaced, before, strict=False):
            if newer is not self._catcher and newer is not handler:
                _signal(number, newer)

    def _handler_of(self, number: int) -> Callable[[int, FrameType | None], Any]:
        handler: Callable[[int, FrameType | None], Any] = self._known[number]
        return handler

    @starts_unchecked
    def _deliver(self) -> None:
        """Raise what handlers have raised, and run those whose signals were caught."""
        if self._raised:
            error, self._raised = self._raised[0], self._raised[1:]
            try:
                raise error
            finally:
                self._deliver()
        elif self._caught:
            number, self._caught = self._caught[0], self._caught[1:]
            try:
                self._handler_of(number)(number, sys._getframe(2))
            finally:
                self._deliver()

    def interruptible(self, call: Callable[..., _Result], *arguments: Any) -> _Result:
        """Call what blocks, such as the ``acquire`` of a lock; a signal may interrupt it.

        Only the outermost block lets a signal through, and blocks in the call do not. The effect of
        a call that was interrupted is not known: it may have acquired the lock.
        """
        if threading.get_ident() != self._main or self._depth != 1:
            return call(*arguments)
        self._letting += 1
        self._depth = 0
        try:
            if self._caught or self._raised:
                self._deliver()
            return call(*arguments)
        finally:
            self._depth = 1
            self._letting -= 1

    def outside(self, call: Callable[[], _Result]) -> _Result:
        """Call what belongs to the application, with its handlers in force.

        Only the outermost block is left for it. What a handler raises comes out of this call. If
        one is due already, it runs at the end of the block, and the call belongs to the block.
        """
        if (thread := threading.get_ident()) in self._rooms and _is_deeper(self._limit):
            raise RecursionError("maximum recursion depth exceeded")
        if (
            thread != self._main
            or self._depth != 1
            or self._letting
            or self._caught
            or self._raised
        ):
            return call()
        try:
            self._leave()
            return call()
        finally:
            self.__enter__()

    def after_fork(self) -> None:
        """Restore the handlers in a forked child if its parent's main thread was in a block."""
        inside, self._main = self._main, threading.get_ident()
        if self._swapped and inside != self._main:
            self._caught, self._raised, self._letting = (), (), 0
            self._restore()
        if self._limit:
            self._rooms = {one: n for one, n in self._rooms.items() if one == self._main}
            self._rooms[self._main] = self._rooms.get(self._main, 0) + 1
            self._end_room(self._main)

    def handlers(self) -> list[Any]:
        """Return the handlers that this block keeps from running."""
        return [self._known[number] for number in self._numbers] if self._swapped else []


uninterrupted: Uninterrupted = getattr(CORE, "uninterrupted", None) or Uninterrupted()
after_fork_in_child(uninterrupted.after_fork)


def interrupt_in(error: BaseException, handled: BaseException | None) -> BaseException | None:
    """Return what has interrupted a call: the cause of its error, if a signal handler raised that.

    Args:
        error: What the call has raised; called in the block in which that was, if it was in one.
        handled: The exception that was being handled already when the call began: it is not why.
    """
    handlers = uninterrupted.handlers() or filter(callable, map(_getsignal, _NUMBERS))
    codes = {_code_of(one) for one in handlers}
    found: BaseException | None = error
    seen: set[int] = set()  # an error that is raised again may have itself as its cause's context
    while found is not None and found is not handled and id(found) not in seen:
        seen.add(id(found))
        if not isinstance(found, Exception):
            return found
        trace = found.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code in codes:
                return found
            trace = trace.tb_next
        found = found.__cause__ or found.__context__
    return None


def _code_of(handler: Any) -> object:
    """Return the code that runs first when a handler is called; None if it is not in Python."""
    while isinstance(handler, partial):
        handler = handler.func
    code = getattr(handler, "__code__", None)  # of methods, too
    return code or getattr(handler.__call__, "__code__", None)


class Bell:
    """Wakes threads that wait until something has changed; safe where handlers may run.

    Unlike `threading.Condition` it has no lock: whoever changes what is waited for does so in one
    step, and rings then.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[threading.Lock] = []

    def ring(self) -> None:
        """Have every thread that waits look again."""
        for waiter in list(self._waiting):
            with contextlib.suppress(RuntimeError):  # it was woken already
                waiter.release()

    def wait(self, ready: Callable[[], bool], deadline: float | None = None) -> bool:
        """Return True once ``ready()`` does so, False at the deadline, of `time.monotonic`.

        Called in an uninterrupted block; a signal may interrupt it if that is the outermost one.
        """
        waiter = threading.Lock()
        waiter.acquire()
        self._waiting.append(waiter)
        try:
            while not ready():
                rest = -1.0 if deadline is None else deadline - time.monotonic()
                if deadline is not None and rest <= 0:
                    return False
                uninterrupted.interruptible(waiter.acquire, True, min(rest, threading.TIMEOUT_MAX))
            return True
        finally:
            self._waiting.remove(waiter)
