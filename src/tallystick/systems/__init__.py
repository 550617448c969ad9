"""One folder per log system, all of the same plan; a seventh needs one folder and one line here.

* `layout.py`: bytes <-> records; pure functions, no I/O
* `reader.py`: files -> records and verdicts (what its own recovery would do); never writes
* `log.py`: the live log: open, append, sync, recover, dispose
* further modules where the system has more: values, pages, operations

`SYSTEMS` lists the systems; `tallystick.systems.base` has what they implement, and
`tallystick.discovery` finds their logs in a tree of files.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from tallystick.systems.base import System

# In this order a folder is searched: formats with a firm signature first.
_MODULES: tuple[str, ...] = ("tally", "bitronix", "jboss", "h2", "derby", "cloudtran")


def systems() -> tuple[System, ...]:
    """Every registered system, most easily recognised first."""
    return tuple(system(name) for name in _MODULES)


def system(name: str) -> System:
    """The system of that name. Raises `KeyError` if there is none."""
    if name not in _MODULES:
        raise KeyError(name)
    module = import_module(f"tallystick.systems.{name}")
    return cast(System, module.SYSTEM)
