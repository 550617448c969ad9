"""The debounced thread calls its work once for many prompts, and always ends."""

from __future__ import annotations

import threading

import pytest

from tallystick.systems.cloudtran.live.debounced_thread import DebouncedThread


def test_many_prompts_are_one_call() -> None:
    called = threading.Event()
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        called.set()

    thread = DebouncedThread(work, 0.05)
    for _ in range(100):
        thread.prompt()
    assert called.wait(10)
    thread.close()
    assert len(calls) == 1


def test_closed_at_the_moment_it_wakes_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """`close` may come between the end of the wait and the clearing of the request."""
    calls: list[int] = []
    thread = DebouncedThread(lambda: calls.append(1), 0.0)
    clear = thread._wanted.clear

    def closed_just_before() -> None:
        thread._closing.set()
        thread._wanted.set()
        clear()

    monkeypatch.setattr(thread._wanted, "clear", closed_just_before)
    thread.prompt()
    thread._thread.join(10)
    assert not thread._thread.is_alive()
    assert calls == []
