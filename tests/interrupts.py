"""Send signals before every bytecode of a call, where CPython would run their handlers.

In: a call. Out: one run of it for each of its bytecodes, or for a sample of them, each with a
signal (or two) sent before that bytecode: SIGINT with Python's own handler, SIGTERM with one that
raises `SystemExit`, SIGALRM with one that raises `TimeLimit`, as a task queue's time limit does.

The tracer sends the signal as the last thing that it does, with a function that does not look for
signals itself (`signal.raise_signal` does): then no bytecode of the tracer follows at which CPython
looks for them, and the handler runs where it would run without a tracer.
"""

from __future__ import annotations

import _thread
import gc
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from types import FrameType
from typing import Any

from tests.sweeps import SEED, Sweep


class TimeLimit(Exception):  # noqa: N818 - as those of task queues are named
    """What the handler of SIGALRM raises."""


def _exit(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _limit(_number: int, _frame: object) -> None:
    raise TimeLimit


HANDLERS: dict[int, Any] = {
    int(signal.SIGINT): signal.default_int_handler,
    int(signal.SIGTERM): _exit,
    int(signal.SIGALRM): _limit,
}
INTERRUPTS = (KeyboardInterrupt, SystemExit, TimeLimit)
RUNS = int(os.environ.get("TALLYSTICK_INTERRUPTS", "350"))
"""Runs that all parts of a sweep have together with one signal, and with two, at most."""


_interrupt: Any = _thread.interrupt_main


@contextmanager
def handlers() -> Iterator[None]:
    """Install the handlers for the block.

    Without collections of garbage: what a handler raises in a callback of the collector, or in a
    finalizer, CPython prints and drops.
    """
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    before = {number: signal.signal(number, one) for number, one in HANDLERS.items()}
    try:
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, one)
        gc.collect()  # here, and not in a test that has nothing to do with what was interrupted
        if collecting:
            gc.enable()


def require_handlers() -> None:
    """Fail unless the handlers are in force as they were."""
    for number, one in HANDLERS.items():
        assert signal.getsignal(number) is one, f"the handler of {signal.Signals(number).name}"


class _Tracer:
    """Counts the bytecodes of every function that is called, and sends signals before one."""

    def __init__(self, point: int | None, numbers: tuple[int, ...]) -> None:
        self.count = 0
        self._point = point
        self._sending = map(_interrupt, numbers)

    def function(self, frame: FrameType, _event: str, _arg: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self.bytecode

    def bytecode(self, _frame: FrameType, event: str, _arg: object) -> Any:
        if event == "opcode":
            if self.count == self._point:
                sys.settrace(None)
                self.count += 1
                # No call: after one CPython would look for signals here.
                self._sent = [*self._sending]
                return None
            self.count += 1
        return self.bytecode


def bytecodes_of(call: Callable[[], object]) -> int:
    """Return how many bytecodes a call takes; it runs to its end."""
    tracer = _Tracer(None, ())
    _traced(tracer, call)
    return tracer.count


def interrupted(call: Callable[[], object], point: int, *numbers: int) -> BaseException | None:
    """Run a call, with signals sent before one of its bytecodes; return what handlers raised.

    Signals that are sent too late run their handlers after the call, which is an interrupt too.
    """
    raised: BaseException | None = None
    try:
        _traced(_Tracer(point, numbers), call)
    except INTERRUPTS as error:
        raised = error
    for _ in HANDLERS:
        try:
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)  # runs the handlers that are due
        except INTERRUPTS as error:
            raised = error
    return raised


def interrupted_in(error: BaseException) -> str:
    """Return the name of the function between two bytecodes of which the handlers ran."""
    trace, name = error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_code not in (_exit.__code__, _limit.__code__):
            name = trace.tb_frame.f_code.co_name
        trace = trace.tb_next
    return name


def _traced(tracer: _Tracer, call: Callable[[], object]) -> None:
    before = sys.gettrace()
    sys.settrace(tracer.function)
    try:
        call()
    finally:
        sys.settrace(before)


@dataclass
class Tally:
    """Counts what was tried, and keeps what went wrong."""

    service: str
    points: int = 0
    runs: int = 0
    raised: int = 0

    def __str__(self) -> str:
        return (
            f"{self.service}: {self.points} points, {self.runs} interrupts, of which {self.raised}"
            f" were raised; 0 lost, 0 poisoned, 0 unsettled; seed {SEED}"
        )

    def enumerate(
        self,
        call: Callable[[], object],
        check: Callable[[BaseException | None], object],
        sweep: Sweep,
        *,
        sample: int,
        pairs: int,
        runs: int = RUNS,
    ) -> None:
        """Interrupt a call before its bytecodes, and check what holds after each.

        Args:
            call: Run again and again; it takes about the same way each time.
            check: Called after each run with what was raised, or None; raises if something is
                wrong.
            sweep: A sample, or a part of the runs before every bytecode with every signal.
            sample: How many runs with one signal a sample has.
            pairs: How many runs with two signals it has.
            runs: How many of those with one signal all parts have together, and of those with two;
                the seed of the run chooses which.
        """
        chance = random.Random(f"{SEED} {self.service}")
        with handlers():
            count = min(self._bytecodes(call, check) for _ in range(3))
            self.points += count
            one: list[tuple[int, tuple[int, ...]]]
            one = [(point, (number,)) for point in range(count) for number in HANDLERS]
            each = list(combinations(HANDLERS, 2))
            one = chance.sample(one, min(runs, len(one)))
            two = [(chance.randrange(count), chance.choice(each)) for _ in range(len(one))]
            for point, numbers in sweep.of(one, sample) + sweep.of(two, pairs):
                error = interrupted(call, point, *numbers)
                try:
                    require_handlers()
                    check(error)
                except BaseException as wrong:
                    names = [signal.Signals(one).name for one in numbers]
                    raise AssertionError(
                        f"{self.service}, seed {SEED}: {names} before bytecode {point} of"
                        f" {count} ({error!r}): {wrong!r}"
                    ) from wrong
                self.runs += 1
                self.raised += error is not None

    @staticmethod
    def _bytecodes(
        call: Callable[[], object], check: Callable[[BaseException | None], object]
    ) -> int:
        count = bytecodes_of(call)
        check(None)
        return count
