"""What Java says about itself while it starts, kept from the terminal.

In: the standard error of this process. Out: all that is written there by a Java started
within `without_java_notes`, for as long as it lives, but for lines that tell an operator nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

NOTES = (b"WARNING: Using incubator modules",)
"""Spark asks for the module, and no setting keeps Java from remarking on it."""

_STDERR = 2


@contextlib.contextmanager
def without_java_notes() -> Iterator[None]:
    """Processes started meanwhile write to standard error through a filter."""
    sys.stderr.flush()
    own = os.dup(_STDERR)
    reading, writing = os.pipe()
    os.dup2(writing, _STDERR)
    os.close(writing)
    threading.Thread(target=_forward, args=(reading, os.dup(own)), daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(own, _STDERR)
        os.close(own)


def _forward(reading: int, writing: int) -> None:
    """Line by line until the last process that writes has ended."""
    with os.fdopen(reading, "rb") as lines, os.fdopen(writing, "wb", buffering=0) as out:
        for line in lines:
            if not line.startswith(NOTES):
                with contextlib.suppress(OSError):  # whoever read it is gone
                    out.write(line)
