"""Choose the coordinator journal of a transaction that no journal mentions.

Several coordinators may have the same name.

In: the journals that hold an owner's decisions, each with the logs that have branches of them, and
the logs that have branches of one global transaction. Out: the journals that may be its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile
from typing import Any


def responsible_journals(
    journals: Iterable[dict[str, Any]], logs: AbstractSet[str]
) -> Sequence[dict[str, Any]]:
    """Return the journals whose coordinator works with these logs: those that share most of them.

    Where none shares any: those that share logs with no transaction, and those to which one of the
    logs is as near, by its path, as the nearest log that they work with. A journal of another
    coordinator with the same name, elsewhere, is not responsible for these logs.
    """
    known = list(journals)
    shared = [len(logs & set(one.get("logs") or ())) for one in known]
    most = max(shared, default=0)
    if most:
        return [one for one, count in zip(known, shared, strict=True) if count == most]
    return [one for one in known if not one.get("logs") or _is_near(one, logs)]


def nearest(journals: Iterable[dict[str, Any]], logs: Sequence[str]) -> str | None:
    """Return the journal with the most folders in common with these logs."""

    def distance(journal: str) -> tuple[int, str]:
        own = journal.split("/")[:-1]
        return -sum(_shared(own, log) for log in logs), journal

    return min((journal["log"] for journal in journals), key=distance, default=None)


def _is_near(journal: dict[str, Any], logs: Iterable[str]) -> bool:
    own = journal["log"].split("/")[:-1]
    depth = max(_shared(own, log) for log in journal["logs"])
    return any(_shared(own, log) >= depth for log in logs)


def _shared(folders: Sequence[str], path: str) -> int:
    """Return how many of the folders, from the first on, are those of the path, too."""
    pairs = zip(folders, path.split("/")[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda names: names[0] == names[1], pairs))
