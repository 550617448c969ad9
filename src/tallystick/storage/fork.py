"""What holds a part of a log belongs to one process, and is one object in it.

In: objects that hold descriptors, locks or unwritten records. Out: a call of their ``forked``
in every child, before anything else runs there; an error for whoever copies or pickles one of them,
alone or as a part of something else (`copy.deepcopy`, `dataclasses.asdict`).
"""

from __future__ import annotations

import contextlib
import weakref
from typing import NoReturn, Protocol

from tallystick.errors import LogClosedError
from tallystick.posix import after_fork_in_child


class Forked(Protocol):
    """Something that must not go on in a forked child."""

    def forked(self) -> None:
        """Give up in the child; called in its only thread."""
        ...


class Uncopied:
    """Refuses to be copied, and to be pickled."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        refuse_copy(self)

    __getstate__ = __reduce__  # for those who call what `object` has in place of the method above


def refuse_copy(thing: object) -> NoReturn:
    """Raise the error for whoever copies ``thing``, in the compiled core, too."""
    raise TypeError(
        f"a {type(thing).__name__} cannot be copied or pickled: it holds what is open. Hand on its "
        "path or its settings, and open it in the process that uses it"
    )


_registered: weakref.WeakSet[Forked] = weakref.WeakSet()


def register_in_child(thing: Forked) -> None:
    """Call ``thing.forked()`` in every child forked from now on, while ``thing`` lives."""
    _registered.add(thing)


def forked_error(path: str) -> LogClosedError:
    """Return the error for a child that uses a log of its parent."""
    return LogClosedError(
        "it belongs to the process that forked this one",
        file=path,
        advice="Open the log anew in the child, once its parent has closed it; a journal or a "
        "manager may be open in both, with shared=True",
    )


def _call_registered() -> None:
    # The stack calls all of them whatever one raises: it must not leave another open in the child.
    with contextlib.ExitStack() as stack:
        for thing in list(_registered):
            stack.callback(thing.forked)


after_fork_in_child(_call_registered)
