"""A SIGINT during a block takes effect at its end."""

from __future__ import annotations

import signal
import threading

import pytest

from tallystick.storage.signals import defer_sigint


def test_an_interrupt_is_raised_after_the_block() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt):
        with defer_sigint():
            signal.raise_signal(signal.SIGINT)
            steps.append("inside")
        steps.append("after")
    assert steps == ["inside"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_block_without_interrupt_leaves_the_handler_as_it_was() -> None:
    with defer_sigint():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_block_goes_through() -> None:
    with pytest.raises(ValueError, match="inner"), defer_sigint():
        raise ValueError("inner")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_handlers_that_python_did_not_install_are_left_alone(handler: signal.Handlers) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        with defer_sigint():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_do_not_touch_the_handler() -> None:
    seen = []

    def work() -> None:
        with defer_sigint():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
