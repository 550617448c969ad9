"""The parts of the group writer: counters, held-back interrupts, company, forks."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from tallystick.storage.fork import tell_of_forks
from tallystick.storage.group.counters import BUCKETS, GroupCounters
from tallystick.storage.group.leader_wait import Company
from tallystick.storage.signals import InterruptsHeldBack


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        (0.0, 0),
        (0.000_999, 0),
        (0.001, 1),
        (0.001_999, 1),
        (0.002, 2),
        (0.0039, 2),
        (0.004, 3),
        (1.0, 10),
        (1e6, BUCKETS - 1),
    ],
)
def test_bucket_n_counts_flushes_below_one_millisecond_times_two_to_the_n(
    seconds: float, bucket: int
) -> None:
    counters = GroupCounters()
    counters.add_time(seconds)
    assert counters.histogram.index(1) == bucket
    assert sum(counters.histogram) == 1
    assert counters.seconds == seconds


def test_fsyncs_per_record_is_zero_before_the_first() -> None:
    counters = GroupCounters()
    assert counters.fsyncs_per_record == 0
    counters.add_group(4, 100)
    counters.fsyncs = 1
    assert counters.fsyncs_per_record == 0.25


# -- interrupts -----------------------------------------------------------------------------


def test_an_interrupt_is_raised_behind_the_block() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt):
        with InterruptsHeldBack():
            signal.raise_signal(signal.SIGINT)
            steps.append("inside")
        steps.append("behind")
    assert steps == ["inside"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_block_without_interrupt_leaves_the_handler_as_it_was() -> None:
    with InterruptsHeldBack():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_block_goes_through() -> None:
    with pytest.raises(ValueError, match="inner"), InterruptsHeldBack():
        raise ValueError("inner")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_handlers_that_python_did_not_install_are_left_alone(handler: signal.Handlers) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        with InterruptsHeldBack():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_do_not_touch_the_handler() -> None:
    seen = []

    def work() -> None:
        with InterruptsHeldBack():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


# -- company ----------------------------------------------------------------------------------


def _seconds_waited(company: Company) -> float:
    started = time.perf_counter()
    company.wait()
    return time.perf_counter() - started


def test_nobody_waits_for_company_that_was_never_there() -> None:
    company = Company()
    company.flushed(10.0)
    company.expect([[]])
    assert _seconds_waited(company) < 0.002


def test_patience_is_bounded_however_slow_the_disk_is() -> None:
    company = Company()
    company.flushed(10.0)
    company.expect([[None] * 3])
    assert 0.004 < _seconds_waited(company) < 1.0


def test_the_last_to_return_ends_the_wait() -> None:
    company = Company()
    for _ in range(2):
        company.flushed(10.0)
        first, second = [None], [None]
        company.expect([first, second])
        for waiting in (first, second):
            assert company.out()
            waiting.pop()
            company.returned(waiting)
        assert _seconds_waited(company) < 0.003


# -- forks ----------------------------------------------------------------------------------------


def test_only_the_living_are_told_of_a_fork_and_only_in_the_child() -> None:
    told = []

    class Told:
        def __init__(self, name: str) -> None:
            self.name = name

        def forked(self) -> None:
            told.append(self.name)

    alive, dead = Told("alive"), Told("dead")
    tell_of_forks(alive)
    tell_of_forks(dead)
    del dead
    child = os.fork()
    if child == 0:
        os._exit(0 if told == ["alive"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert told == []
