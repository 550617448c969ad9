"""The decision table over rows: plain dictionaries in, plain dictionaries out.

In: one row per global transaction, with its parts, the journals of its owner, which log a resource
name means, and ends without a name. Out: its judgement, with the keys of
`tallystick.reconcile.structures.GLOBAL_TRANSACTIONS`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tallystick.reconcile.coordinators import nearest, responsible_journals
from tallystick.reconcile.decision_table import (
    Branch,
    Decided,
    Judgement,
    Place,
    due_of,
    judge,
    named_branches,
)
from tallystick.reconcile.ids import owner_text, time_of
from tallystick.reconcile.resources import Pattern, assign
from tallystick.records import State

COMMITTED = (State.COMMITTED.value, State.COMMITTING.value)
"""States of a coordinator's record after which every name in it has a branch."""

_STATES = {
    State.PREPARED: "prepared",
    State.COMMITTED: "committed",
    State.ROLLED_BACK: "rolled_back",
    State.ROLLING_BACK: "rolled_back",
    State.ACTIVE: "active",
}

_RANK = ("unknown", "active", "prepared", "rolled_back", "committed")
"""Where one branch is seen twice, the later of these states is the one that counts."""


def judge_row(row: dict[str, Any]) -> dict[str, Any]:
    """Judge one global transaction: see `decision_table.judge`."""
    decided = _decided(row["parts"])
    logs = _resources(row["resources"] or (), decided)
    branches = named_branches(decided, _branches(row["parts"]), logs)
    branches = [_undone(branch, row["undone"] or ()) for branch in branches]
    journals = row["journals"] or ()
    if decided is None and not row["owner"]:
        journals = ()  # nothing in its id says whose it is
    elif decided is None:
        journals = responsible_journals(journals, {branch.log for branch in branches if branch.log})
    its_own = [one for one in journals if decided is None or one["log"] == decided.log]
    judgement = judge(
        decided,
        branches,
        owned=bool(journals),
        covered=any(_covers(journal, row["gtrid"]) for journal in journals),
        damaged=any(journal.get("damaged") for journal in its_own),
        lasts=sorted({name for journal in its_own for name in journal.get("lasts", ())}),
    )
    notes = [part for part in row["parts"] if part["bqual"] is None]
    times = [part["last_time"] for part in notes if part["last_time"] is not None]
    return {
        "format_id": row["format_id"],
        "gtrid": row["gtrid"],
        "owner": owner_text(row["format_id"], row["gtrid"], row["owner"]) or None,
        "coordinator": _coordinator(decided, journals, branches),
        "decision": judgement.decision and judgement.decision.value,
        "branches": [_branch_row(branch, judgement, decided) for branch in branches],
        "resolution": judgement.resolution.value,
        "alarm": judgement.alarm or None,
        "evidence": _evidence(decided, branches, judgement),
        "last_time": max(times, default=None),
        "clock": last["clock"] if (last := last_note(row["parts"])) is not None else None,
    }


def last_note(parts: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the last word of a coordinator's log among the parts of a global transaction."""
    notes = [part for part in parts if part["bqual"] is None]
    return max(notes, key=_age, default=None)


def _age(note: dict[str, Any]) -> tuple[int, int, str]:
    return note["last_time"] or 0, note["evidence_offset"] or 0, note["log"]


def pattern_of(parts: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the names in a decision to commit and the logs with a branch, if it has both."""
    known = list(parts)
    note = last_note(known)
    logs = {part["log"]: part["system"] for part in known if part["bqual"] is not None}
    if note is None or note["state"] not in COMMITTED or not logs or not note["participants"]:
        return None
    return {
        "journal": note["log"],
        "names": sorted(note["participants"]),
        "logs": [{"log": log, "system": logs[log]} for log in sorted(logs)],
    }


def named_logs(patterns: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """Return which log a name in an owner's journals means, from its patterns and their counts."""
    known = list(patterns)
    journals = sorted({row["journal"] for row in known})
    return [
        pair
        for journal in journals
        for pair in _pairs(journal, [row for row in known if row["journal"] == journal])
    ]


def _pairs(journal: str, rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    patterns = []
    systems: dict[str, str] = {}
    for row in rows:
        logs = {log["log"]: log["system"] for log in row["logs"]}
        systems |= logs
        patterns.append(Pattern(frozenset(row["names"]), frozenset(logs), row["count"]))
    pairs = assign(patterns, systems)
    return [{"journal": journal, "name": name, "log": log} for name, log in pairs.items()]


def _resources(pairs: Iterable[dict[str, str]], decided: Decided | None) -> dict[str, str]:
    """Log by name, as the deciding journal means it; where none decided, as any does."""
    return {
        pair["name"]: pair["log"]
        for pair in pairs
        if decided is None or pair["journal"] == decided.log
    }


def _undone(branch: Branch, nameless: Iterable[dict[str, Any]]) -> Branch:
    """Return the branch, ended if its log holds an end without a name that must be its own."""
    for part in nameless:
        if branch.state == "unknown" and branch.log == part["log"]:
            state = part["state"]
            return replace(branch, system=part["system"], state=state, place=_place(part))
    return branch


def _decided(parts: list[dict[str, Any]]) -> Decided | None:
    if (last := last_note(parts)) is None:
        return None
    return Decided(
        last["log"],
        State(last["state"]),
        tuple(last["participants"] or ()),
        tuple(last["open_participants"] or ()),
        _place(last),
    )


def _branches(parts: list[dict[str, Any]]) -> list[Branch]:
    best: dict[tuple[str, bytes], Branch] = {}
    for part in sorted(parts, key=lambda part: (part["log"], part["evidence_offset"] or 0)):
        if part["bqual"] is None:
            continue
        state = _state(part)
        branch = Branch(part["system"], part["log"], None, part["bqual"], state, _place(part))
        key = (part["system"], part["bqual"])
        if key not in best or _RANK.index(best[key].state) < _RANK.index(state):
            best[key] = branch
    return list(best.values())


def _state(part: dict[str, Any]) -> str:
    """Return the state of a branch. A record of a heuristic outcome says which one it was."""
    state = State(part["state"])
    if state is State.HEURISTIC:
        outcome = str(json.loads(part.get("attributes") or "{}").get("outcome"))
        return outcome if outcome in _RANK else "unknown"
    return _STATES.get(state, "unknown")


def _place(part: dict[str, Any]) -> Place:
    return Place(
        part["evidence_type"] or part["state"], part["evidence_file"], part["evidence_offset"]
    )


def _covers(journal: dict[str, Any], gtrid: bytes) -> bool:
    begun = time_of(gtrid)
    since, until = journal["since"], journal["until"]
    return None not in (begun, since, until) and since < begun <= until


def _coordinator(
    decided: Decided | None, journals: Iterable[dict[str, Any]], branches: Iterable[Branch]
) -> str | None:
    """Return the journal that decided; else, of those that may have, the one nearest by path."""
    if decided is not None:
        return decided.log
    return nearest(journals, [branch.log for branch in branches if branch.log is not None])


def _branch_row(branch: Branch, judgement: Judgement, decided: Decided | None) -> dict[str, Any]:
    return {
        "system": branch.system,
        "log": branch.log,
        "resource": branch.resource,
        "bqual": branch.bqual,
        "state": branch.state,
        "due": due_of(branch, judgement, decided),
    }


def _evidence(decided: Decided | None, branches: list[Branch], judgement: Judgement) -> str:
    record = "the coordinator has no record of it" if decided is None else str(decided.place)
    seen = [
        f"{branch.resource or branch.system}: {branch.state.replace('_', ' ')}"
        + (f", {branch.place}" if branch.place is not None else "")
        for branch in branches
    ]
    return "; ".join([*judgement.reasons, record, *seen])
