"""How a journal finds the engine of a log system.

In: the name of a system and the path of a log. Out: an open `JournalEngine`: the system's own, or
an adapter over its record journal.
"""

from __future__ import annotations

from typing import Any, cast

from tallystick.errors import UnsupportedFormatError
from tallystick.roles import JournalEngine, Role
from tallystick.services.journal.role_adapter import RoleEngine
from tallystick.systems.registry import NATIVE, role_class, systems_with


def open_engine(system: str, path: str, **options: Any) -> JournalEngine:
    """Open the journal engine of a system.

    Raises:
        UnsupportedFormatError: the system is no journal.
    """
    if system in (own := systems_with(Role.JOURNAL)):
        return cast(JournalEngine, role_class(Role.JOURNAL, system)(path, **options))
    if system in (historic := systems_with(Role.RECORD_JOURNAL)):
        return RoleEngine(path, role_class(Role.RECORD_JOURNAL, system)(path, **options))
    known = dict.fromkeys((*own, *historic))
    raise UnsupportedFormatError(
        f"{system} logs cannot carry a journal",
        expected=" or ".join(known),
        advice=f'Use system="{NATIVE}"',
    )
