"""A forked child owns nothing of its parent's logs: whoever holds a piece of one is told.

In: objects that hold descriptors, locks or unwritten records. Out: a call of their ``forked``
in every child, before anything else runs there.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from tallystick.errors import LogClosedError


class Forked(Protocol):
    """Something that must not go on in a forked child."""

    def forked(self) -> None:
        """Called in the child, in its only thread."""
        ...


_alive: weakref.WeakSet[Forked] = weakref.WeakSet()


def tell_of_forks(thing: Forked) -> None:
    """Call ``thing.forked()`` in every child forked from now on, while ``thing`` lives."""
    _alive.add(thing)


def forked_error(path: str) -> LogClosedError:
    """What a child is told that uses a log of its parent."""
    return LogClosedError(
        "it belongs to the process that forked this one",
        file=path,
        advice="Open the log anew in the child, once its parent has closed it",
    )


def _tell_all() -> None:
    for thing in list(_alive):
        thing.forked()


os.register_at_fork(after_in_child=_tell_all)
