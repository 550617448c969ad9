"""Ctrl-C works in these tests, also in a shell that has its background jobs ignore it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Install the handler of Python itself."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
