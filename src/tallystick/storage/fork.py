"""What holds a part of a log is called in every forked child, where it must not go on.

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
        """Give up in the child; called in its only thread."""
        ...


_registered: weakref.WeakSet[Forked] = weakref.WeakSet()


def register_in_child(thing: Forked) -> None:
    """Call ``thing.forked()`` in every child forked from now on, while ``thing`` lives."""
    _registered.add(thing)


def forked_error(path: str) -> LogClosedError:
    """Return the error for a child that uses a log of its parent."""
    return LogClosedError(
        "it belongs to the process that forked this one",
        file=path,
        advice="Open the log anew in the child, once its parent has closed it",
    )


def _call_registered() -> None:
    for thing in list(_registered):
        thing.forked()


os.register_at_fork(after_in_child=_call_registered)
