"""Which log belongs to which resource name: no log says it, co-occurrence does.

A coordinator's record names its resources ("jdbc/orders"), a resource's log holds branches of
global ids. In: patterns (names in the decision, logs with a branch, how often). Out: the pairs
that no other reading of the patterns explains as well. What stays ambiguous stays unassigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MESSAGING = ("jms", "queue", "topic", "mq")
"""Words in a resource name that speak of messages, the trade of journals."""

_JOURNALS = ("jboss",)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Global transactions with the same names and the same logs, and their number."""

    names: frozenset[str]
    logs: frozenset[str]
    count: int


def assign(patterns: Iterable[Pattern], systems: Mapping[str, str]) -> dict[str, str]:
    """Log by resource name. ``systems`` has the system of each log, as a hint in ties.

    A branch in a log whose name the decision lacks contradicts a pair; a named resource
    without a branch only weakens it: it may have voted read-only, or its log moved on.
    """
    known = list(patterns)
    names = {name for pattern in known for name in pattern.names}
    logs = {log for pattern in known for log in pattern.logs}
    costs = {
        (name, log): cost
        for name in names
        for log in logs
        if (cost := _cost(name, log, known, systems)) is not None
    }
    assigned: dict[str, str] = {}
    while costs:
        best = min(costs.values())
        ties = [pair for pair, cost in costs.items() if cost == best]
        sure = [pair for pair in ties if _unrivalled(pair, ties)]
        if not sure:
            # Equal claims: neither is made, and neither name nor log is given to a third.
            costs = _without(costs, ties)
            continue
        assigned |= dict(sure)
        costs = _without(costs, sure)
    return assigned


def _cost(
    name: str, log: str, patterns: list[Pattern], systems: Mapping[str, str]
) -> tuple[int, int, int] | None:
    """Contradictions, absences and mismatch of the name's words; None if never together."""
    together = against = absent = 0
    for pattern in patterns:
        named, logged = name in pattern.names, log in pattern.logs
        together += pattern.count * (named and logged)
        against += pattern.count * (logged and not named)
        absent += pattern.count * (named and not logged)
    if not together:
        return None
    return against, absent, int(not _alike(name, log, systems.get(log, "")))


def _alike(name: str, log: str, system: str) -> bool:
    messages = any(word in name.lower() for word in MESSAGING)
    if messages or system in _JOURNALS:
        return messages and system in _JOURNALS
    folder = log.rstrip("/").rpartition("/")[2].lower()
    return folder in name.lower() or name.lower().startswith("jdbc")


def _unrivalled(pair: tuple[str, str], ties: list[tuple[str, str]]) -> bool:
    return not any((pair[0] == name) != (pair[1] == log) for name, log in ties)


def _without(
    costs: dict[tuple[str, str], tuple[int, int, int]], taken: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], tuple[int, int, int]]:
    names = {name for name, _ in taken}
    logs = {log for _, log in taken}
    return {
        pair: cost for pair, cost in costs.items() if pair[0] not in names and pair[1] not in logs
    }
