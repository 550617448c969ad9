"""Make calls where few more are left to Python before it raises `RecursionError`."""

from __future__ import annotations

from collections.abc import Callable


def calls_left() -> int:
    """Return how many calls, one in the other, Python allows from the caller."""
    try:
        return calls_left() + 1
    except RecursionError:
        return 0


def deep(call: Callable[[], object], depth: int) -> None:
    """Make a call from so many calls further in."""
    if depth > 0:
        deep(call, depth - 1)
    else:
        call()
