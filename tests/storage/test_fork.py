"""Objects that hold a part of a log are called in a forked child."""

from __future__ import annotations

import os

from tallystick.storage.fork import register_in_child


def test_forked_is_called_on_living_objects_and_only_in_the_child() -> None:
    called = []

    class Holder:
        def __init__(self, name: str) -> None:
            self.name = name

        def forked(self) -> None:
            called.append(self.name)

    alive, dead = Holder("alive"), Holder("dead")
    register_in_child(alive)
    register_in_child(dead)
    del dead
    child = os.fork()
    if child == 0:
        os._exit(0 if called == ["alive"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert called == []
