"""What the operating system refuses, in words.

In: an `OSError`. Out: its reason, the file that it is about, and what can be done.
"""

from __future__ import annotations

import errno
import re

from tallystick.errors import TallystickError

SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A full disk, a quota, a limit of the size of files: what was refused has changed nothing."""
ROOM_ERRORS = (*SPACE_ERRORS, errno.EMFILE, errno.ENFILE)
"""What may go on later: there is no space now, or no file descriptor."""

_OF_ARROW = re.compile(r"Detail: \[errno \d+\] (.+)$")
"""How Arrow says what the operating system says, after words of its own."""

_IN_THE_WAY = "Something else stands at this place; move it away, or choose another path"
_ADVICE = {
    errno.EMFILE: "Raise the limit of open files (ulimit -n), or close some",
    errno.EAGAIN: "Raise the limits of memory and threads (ulimit -v, ulimit -u), or free some",
    errno.ENFILE: "The machine has too many open files; close some",
    errno.ENAMETOOLONG: "Choose a shorter path",
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EISDIR: _IN_THE_WAY,
    errno.EACCES: "Open it as a user who may write there, or grant permission",
    errno.EPERM: "Open it as a user who may write there, or grant permission",
    errno.EROFS: "The file system is read-only; mount it for writing, or choose another path",
    errno.ELOOP: "Symbolic links are not followed to the files of a log; put the file itself there",
    errno.ENOENT: "It vanished or was never there; look again",
    errno.EFBIG: "Raise the limit of the size of files (ulimit -f)",
}


def reason_of(error: OSError) -> str:
    """Return why a call failed."""
    said = error.strerror or str(error) or type(error).__name__
    return said if (found := _OF_ARROW.search(said)) is None else found[1]


def file_of(error: OSError, path: str) -> str:
    """Return the file that a failed call names, or ``path`` where it names none."""
    return error.filename if isinstance(error.filename, str) else path


def advice_on(error: OSError) -> str | None:
    """Return what can be done about a failed call, if anything is known."""
    return _ADVICE.get(error.errno or 0)


def room_advice(error: OSError) -> str:
    """Return what makes room where there was none for a call."""
    return advice_on(error) or "Free space"


def refused(error: OSError, place: str) -> TallystickError:
    """Return the error of work that cannot go on, as a call failed at a place at least."""
    return TallystickError(
        f"the work cannot go on: {reason_of(error)}",
        file=file_of(error, place) or None,
        advice=room_advice(error) if error.errno in SPACE_ERRORS else advice_on(error),
    )
