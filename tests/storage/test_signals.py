"""Signal handlers that are due during a block run at its end, with the core and without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

from tallystick.storage.scheduling import time
from tallystick.storage.signals import (
    Bell,
    Uninterrupted,
    interrupt_in,
    starts_unchecked,
    uninterrupted,
)
from tests.interrupts import (
    HANDLERS,
    INTERRUPTS,
    TimeLimit,
    bytecodes_of,
    handlers,
    interrupted,
    require_handlers,
)
from tests.threads import in_thread

pytestmark = pytest.mark.both_cores


@pytest.fixture(autouse=True)
def own_handlers() -> Iterator[None]:
    with handlers():
        yield
        require_handlers()


def test_the_compiled_core_has_the_same_calls() -> None:
    calls = {name for name in dir(Uninterrupted) if not name.startswith("_")}
    assert calls == {name for name in dir(uninterrupted) if not name.startswith("_")}


RAISED = dict(zip(HANDLERS, INTERRUPTS, strict=True))


@pytest.mark.parametrize("number", HANDLERS)
def test_an_interrupt_is_raised_after_the_block(number: int) -> None:
    steps = []
    with pytest.raises(RAISED[number]):
        with uninterrupted:
            signal.raise_signal(number)
            steps.append("inside")
        steps.append("after")
    assert steps == ["inside"]
    require_handlers()


def test_a_block_in_a_block_ends_with_the_outer_one() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), uninterrupted:
        with uninterrupted:
            signal.raise_signal(signal.SIGINT)
        steps.append("inside")
    assert steps == ["inside"]


def test_all_handlers_run_even_if_the_first_raises() -> None:
    with pytest.raises(SystemExit) as raised, uninterrupted:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert isinstance(raised.value.__context__, KeyboardInterrupt)


def test_a_handler_that_raises_nothing_runs_once() -> None:
    ran: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: ran.append((number, frame)))
    try:
        with uninterrupted:
            for _ in range(3):
                signal.raise_signal(signal.SIGUSR1)
            assert not ran
        assert [number for number, _ in ran] == [signal.SIGUSR1]
        assert ran[0][1] is not None
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_error_in_the_block_goes_through() -> None:
    with pytest.raises(ValueError, match="inner"), uninterrupted:
        raise ValueError("inner")


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_handlers_that_python_did_not_install_are_left_alone(handler: signal.Handlers) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        with uninterrupted:
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_is_installed_during_the_block_stays() -> None:
    def newer(_number: int, _frame: object) -> None:
        pass

    with uninterrupted:
        signal.signal(signal.SIGALRM, newer)
    assert signal.getsignal(signal.SIGALRM) is newer
    signal.signal(signal.SIGALRM, HANDLERS[signal.SIGALRM])


def test_other_threads_do_not_touch_the_handlers() -> None:
    def work() -> None:
        with uninterrupted:
            require_handlers()

    in_thread(work)


def test_a_child_forked_by_another_thread_during_a_block_has_the_handlers() -> None:
    def fork() -> None:
        child = os.fork()
        if not child:
            try:
                require_handlers()
                with uninterrupted:
                    pass
                require_handlers()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0

    with uninterrupted:
        in_thread(fork)


def test_a_subinterpreter_has_no_handlers_to_keep_off() -> None:
    script = (
        "from tallystick.storage.signals import uninterrupted\\n"
        "for _ in range(2):\\n"
        "    with uninterrupted: pass\\n"
        "with open(%r, 'w') as file: file.write('done')\\n"
    )
    program = (
        "import _xxsubinterpreters as sub, sys\n"
        "one = sub.create()\n"
        f"sub.run_string(one, {script!r}.replace('\\\\n', chr(10)) % sys.argv[1])\n"
    )
    subprocess.run([sys.executable, "-c", program, "/dev/null"], check=True, env={**os.environ})


class Steps:
    """Two counters that a block changes one after the other."""

    def __init__(self) -> None:
        self.first = self.second = 0

    def together(self) -> None:
        with uninterrupted:
            self.first = abs(self.first) + 1
            self.second = abs(self.second) + 1

    def nested(self) -> None:
        with uninterrupted:
            self.first = abs(self.first) + 1
            self.together()
            self.second = abs(self.second) + 1

    @starts_unchecked
    def always(self) -> None:
        with uninterrupted:
            self.together()


ONE_OR_TWO = [*((one,) for one in HANDLERS), *((a, b) for a in HANDLERS for b in HANDLERS if a < b)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("numbers", ONE_OR_TWO)
@pytest.mark.parametrize("call", [Steps.together, Steps.nested, Steps.always])
def test_every_bytecode_of_a_block_belongs_to_it(
    call: Callable[[Steps], None], numbers: tuple[int, ...]
) -> None:
    call(Steps())  # the first block after a change of handlers takes more bytecodes
    for point in range(bytecodes_of(partial(call, Steps()))):
        steps = Steps()
        assert interrupted(partial(call, steps), point, *numbers) is not None
        assert steps.first == steps.second
        require_handlers()


@pytest.mark.parametrize("numbers", ONE_OR_TWO)
def test_a_call_that_starts_unchecked_begins_whatever_arrives(numbers: tuple[int, ...]) -> None:
    """As a ``with`` statement calls ``__exit__``: nothing of Python runs before it."""
    missed = 0
    for point in range(bytecodes_of(Steps().always)):
        steps = Steps()
        interrupted(steps.always, point, *numbers)
        missed += not steps.first
    assert not missed


def test_the_tracer_raises_only_where_the_interpreter_looks_for_signals() -> None:
    def call() -> None:
        one = 1
        two = one + 1
        abs(two)
        three = two
        abs(three)

    lines = set()
    for point in range(bytecodes_of(call)):
        error = interrupted(call, point, signal.SIGINT)
        assert isinstance(error, KeyboardInterrupt)
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is not None and trace.tb_frame.f_code is call.__code__:
            lines.add(trace.tb_lineno - call.__code__.co_firstlineno)
    assert lines == {3, 5}


def test_what_lets_signals_through_has_blocks_of_its_own() -> None:
    steps = []

    def let_through() -> None:
        with uninterrupted:
            signal.raise_signal(signal.SIGALRM)
            steps.append("in its block")
        steps.append("after its block")

    with pytest.raises(TimeLimit), uninterrupted:
        try:
            uninterrupted.interruptible(let_through)
        finally:
            steps.append("in the block")
    assert steps == ["in its block", "in the block"]


def test_a_signal_that_is_due_is_raised_before_what_lets_signals_through() -> None:
    steps: list[str] = []
    with uninterrupted:
        signal.raise_signal(signal.SIGALRM)
        with pytest.raises(TimeLimit):
            uninterrupted.interruptible(steps.append, "called")
    assert not steps


def test_a_handler_that_a_call_inside_has_put_back_later_is_the_one_of_before() -> None:
    def take() -> object:
        return signal.signal(signal.SIGALRM, signal.SIG_IGN)

    with uninterrupted:
        kept: Any = uninterrupted.interruptible(take)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    signal.signal(signal.SIGALRM, kept)
    for _ in range(2):
        with pytest.raises(TimeLimit), uninterrupted:
            signal.raise_signal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, HANDLERS[signal.SIGALRM])


def test_the_application_sees_its_handlers_outside() -> None:
    with uninterrupted:
        uninterrupted.outside(require_handlers)
        with pytest.raises(TimeLimit):
            uninterrupted.outside(lambda: signal.raise_signal(signal.SIGALRM))


def interrupt_of(call: Callable[[int], object], number: int) -> BaseException | None:
    """Return what `interrupt_in` finds in the error of a call, with a signal sent in it."""
    handled = sys.exception()
    with uninterrupted:
        try:
            uninterrupted.interruptible(call, number)
        except BaseException as error:
            return interrupt_in(error, handled)
    return None


def raised_from_another(number: int) -> None:
    try:
        signal.raise_signal(number)
    except BaseException:
        raise ValueError("of a driver") from None


@pytest.mark.parametrize("number", HANDLERS)
@pytest.mark.parametrize("call", [signal.raise_signal, raised_from_another])
def test_what_a_handler_raised_is_found_in_the_error_of_a_call(
    call: Callable[[int], None], number: int
) -> None:
    assert isinstance(interrupt_of(call, number), RAISED[number])


def test_the_handler_may_be_an_object_or_a_partial_function() -> None:
    class Handler:
        def __call__(self, _number: int, _frame: object) -> None:
            raise TimeLimit

        method = __call__

    own = Handler()
    for one in (own, own.method, partial(own.method), partial(partial(own))):
        signal.signal(signal.SIGALRM, one)
        assert isinstance(interrupt_of(raised_from_another, signal.SIGALRM), TimeLimit)
    signal.signal(signal.SIGALRM, HANDLERS[signal.SIGALRM])


def test_an_interrupt_of_before_is_not_found_in_an_error() -> None:
    def fail(_number: int) -> None:
        raise ValueError("of a driver")

    try:
        signal.raise_signal(signal.SIGALRM)
    except TimeLimit:
        assert interrupt_of(fail, signal.SIGALRM) is None
        assert isinstance(interrupt_of(raised_from_another, signal.SIGINT), KeyboardInterrupt)
    assert interrupt_of(fail, signal.SIGALRM) is None


def test_an_error_that_is_raised_again_for_its_cause_ends_the_search() -> None:
    def fail(_number: int) -> None:
        error = ValueError("of a driver")
        try:
            raise KeyError from error
        except KeyError:
            raise error from None

    assert interrupt_of(fail, signal.SIGALRM) is None


def test_a_wait_for_a_bell_is_interrupted_once() -> None:
    bell, ready = Bell(), threading.Event()

    def send() -> None:
        while not bell._waiting:
            time.sleep(0.001)
        while not ready.is_set():
            signal.pthread_kill(main, signal.SIGALRM)
            time.sleep(0.001)

    main = threading.get_ident()
    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(TimeLimit), uninterrupted:
        try:
            bell.wait(lambda: False)
        finally:
            assert not bell._waiting
            ready.set()
            thread.join()


def test_a_bell_wakes_whoever_waits_for_what_has_changed() -> None:
    bell, seen, changed = Bell(), [], threading.Event()

    def wait() -> None:
        with uninterrupted:
            seen.append(bell.wait(changed.is_set))

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for one in threads:
        one.start()
    bell.ring()
    changed.set()
    bell.ring()
    for one in threads:
        one.join()
    assert seen == [True] * 4
    with uninterrupted:
        assert not bell.wait(lambda: False, time.monotonic() + 0.01)
