"""What is wrong with a coordinator and its databases before a transaction finds out.

In: a coordinator's directory (`directory`) and resources by name and URL (`databases`). Out: one
`Check` per thing looked at, with the line to type where something is to be done. Nothing is
written: no table is made, no lock is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tallystick.indoubt.doctor.checks import Check, Level
from tallystick.indoubt.doctor.databases import check_database
from tallystick.indoubt.doctor.directory import check_directory, known_identities
from tallystick.indoubt.doctor.service import check_service, is_service

__all__ = ["Check", "Level", "examine"]


def examine(coordinator: str, resources: Mapping[str, str]) -> Sequence[Check]:
    """Return what is found in a coordinator's directory and in its databases.

    Of a write-behind service it is what its disposer refuses.

    Args:
        coordinator: the directory of a coordinator, or of a write-behind service.
        resources: URLs of the databases, by the names that the manager has for them.
    """
    if is_service(coordinator):
        return list(check_service(coordinator))
    found = [*check_directory(coordinator, resources)]
    identities = known_identities(coordinator)
    for name, url in resources.items():
        found += check_database(name, url, identities.get(name))
    return found
