"""Objects that hold a part of a log are called in a forked child."""

from __future__ import annotations

import os

import pytest

from tallystick.storage import fork, mapped
from tallystick.storage.fork import register_in_child


class Holder:
    """Notes by its name that it was called; one called "broken" fails then."""

    def __init__(self, name: str, called: list[str]) -> None:
        self.name, self.called = name, called

    def forked(self) -> None:
        self.called.append(self.name)
        if self.name == "broken":
            raise OSError(self.name)


def test_forked_is_called_on_living_objects_and_only_in_the_child() -> None:
    called: list[str] = []
    alive, dead = Holder("alive", called), Holder("dead", called)
    register_in_child(alive)
    register_in_child(dead)
    del dead
    child = os.fork()
    if child == 0:
        os._exit(0 if called == ["alive"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert called == []


def test_what_one_cannot_give_up_keeps_no_other_from_doing_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[str] = []
    holders = [Holder(name, called) for name in ("first", "broken", "last")]
    monkeypatch.setattr(fork, "_registered", holders)
    with pytest.raises(OSError, match="broken"):
        fork._call_registered()
    assert sorted(called) == ["broken", "first", "last"]


def test_a_child_that_is_forked_while_a_file_is_mapped_maps_its_own() -> None:
    with mapped._guard.lock:  # as another thread does
        child = os.fork()
        if not child:
            os._exit(0 if mapped._guard.lock.acquire(blocking=False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
