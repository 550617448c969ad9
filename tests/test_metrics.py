"""Metrics of a process that forks."""

from __future__ import annotations

import os
import signal

import pytest

from tallystick import metrics


def test_a_child_that_is_forked_while_an_instrument_is_made_makes_its_own() -> None:
    pytest.importorskip("opentelemetry")
    with metrics._LOCK:  # in the parent another thread would have it
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(5)
            metrics.Meter("tallystick.test").counter("made_total", "Instruments of the child")
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
