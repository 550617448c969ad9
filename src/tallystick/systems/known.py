"""The registered systems by name.

In: the name of a system. Out: its `System`; its package is imported when it is asked for, and code
of it when that is used.

A seventh system is one folder below `tallystick.systems` and one line in `PACKAGES`; a system of
another distribution is an entry point of the group ``tallystick.systems`` (name = module).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, cast

from tallystick.systems.protocol import System

# A folder is searched in this order: formats with an unmistakable signature first.
PACKAGES: dict[str, str] = {
    "tally": "tallystick.systems.tally",
    "bitronix": "tallystick.systems.bitronix",
    "h2": "tallystick.systems.h2",
    "derby": "tallystick.systems.derby",
    "jboss": "tallystick.systems.jboss",
    "cloudtran": "tallystick.systems.cloudtran",
}

NATIVE: Final = "tally"
"""The system of our own: what services write unless they are asked for another one."""

GROUP: Final = "tallystick.systems"
"""The group of entry points by which other distributions add systems."""


@cache
def _installed() -> dict[str, str]:
    return {one.name: one.value for one in entry_points(group=GROUP)}


def packages() -> dict[str, str]:
    """Return the package of every system by name; a name of ours cannot be taken over."""
    return {**PACKAGES, **{n: p for n, p in _installed().items() if n not in PACKAGES}}


def systems() -> tuple[System, ...]:
    """Return every registered system, most easily recognised first."""
    return tuple(system(name) for name in packages())


def system(name: str) -> System:
    """Return the system of that name.

    Raises:
        KeyError: there is none.
    """
    return cast(System, import_module(packages()[name]).SYSTEM)
