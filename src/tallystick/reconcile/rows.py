"""The decision table over rows: structures from Spark, and structures for Spark.

In: Arrow structures, one per global transaction, as `stages.globals` puts them together.
Out: structures of `GLOBAL_TRANSACTIONS`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

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
from tallystick.reconcile.ids import time_of
from tallystick.reconcile.resources import Pattern, assign
from tallystick.records import State

BRANCH = pa.struct(
    [
        ("system", pa.string()),
        ("log", pa.string()),
        ("resource", pa.string()),
        ("bqual", pa.binary()),
        ("state", pa.string()),
        ("due", pa.string()),
    ]
)
"""``due`` is what is due for this branch, null unless it is in doubt."""

GLOBAL_TRANSACTIONS = pa.schema(
    [
        ("format_id", pa.int32()),
        ("gtrid", pa.binary()),
        ("owner", pa.string()),
        ("coordinator", pa.string()),
        ("decision", pa.string()),
        ("branches", pa.list_(pa.field("element", BRANCH))),
        ("resolution", pa.string()),
        ("alarm", pa.string()),
        ("evidence", pa.string()),
        ("last_time", pa.int64()),
        ("clock", pa.string()),
    ]
)
"""One row is a global transaction over all logs; times are those of its coordinator."""

_RESOURCE = pa.struct([("journal", pa.string()), ("name", pa.string()), ("log", pa.string())])

RESOURCES = pa.list_(pa.field("element", _RESOURCE))
"""Which log a resource name in a coordinator's journal means."""

_STATES = {
    State.PREPARED: "prepared",
    State.COMMITTED: "committed",
    State.ROLLED_BACK: "rolled_back",
    State.ROLLING_BACK: "rolled_back",
    State.ACTIVE: "active",
}

_RANK = ("unknown", "active", "prepared", "rolled_back", "committed")
"""Where one branch is seen twice, the later of these states is the one that counts."""


def judged(rows: pa.Array) -> pa.Array:
    """Return the judgement of every row, as structures in the schema `GLOBAL_TRANSACTIONS`."""
    answers = [judge_row(row) for row in rows.to_pylist()]
    return pa.array(answers, type=pa.struct(list(GLOBAL_TRANSACTIONS)))


def judge_row(row: dict[str, Any]) -> dict[str, Any]:
    """Judge one global transaction: see `decision_table.judge`."""
    decided = _decided(row["parts"])
    logs = _resources(row["resources"] or (), decided)
    branches = named_branches(decided, _branches(row["parts"]), logs)
    branches = [_undone(branch, row["undone"] or ()) for branch in branches]
    journals = row["journals"] or ()
    if decided is None:
        journals = responsible_journals(journals, {branch.log for branch in branches if branch.log})
    judgement = judge(
        decided,
        branches,
        owned=bool(journals),
        covered=any(_covers(journal, row["gtrid"]) for journal in journals),
        damaged=any(
            journal.get("damaged") and (decided is None or journal["log"] == decided.log)
            for journal in journals
        ),
    )
    notes = [part for part in row["parts"] if part["bqual"] is None]
    times = [part["last_time"] for part in notes if part["last_time"] is not None]
    return {
        "format_id": row["format_id"],
        "gtrid": row["gtrid"],
        "owner": None if row["owner"] is None else bytes(row["owner"]).decode("ascii", "replace"),
        "coordinator": _coordinator(decided, journals, branches),
        "decision": judgement.decision and judgement.decision.value,
        "branches": [_branch_row(branch, judgement, decided) for branch in branches],
        "resolution": judgement.resolution.value,
        "alarm": judgement.alarm or None,
        "evidence": _evidence(decided, branches, judgement),
        "last_time": max(times, default=None),
        "clock": notes[0]["clock"] if notes else None,
    }


def assigned(patterns: pa.Array) -> pa.Array:
    """Return the `RESOURCES` of each owner, from the patterns of one journal at a time."""
    answers = []
    for rows in patterns.to_pylist():
        journals = {row["journal"] for row in rows}
        per_journal = (
            _pairs(one, [row for row in rows if row["journal"] == one]) for one in sorted(journals)
        )
        answers.append([pair for pairs in per_journal for pair in pairs])
    return pa.array(answers, type=RESOURCES)


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
    """Return the branch, rolled back if its log holds a nameless rollback that must be its own."""
    for part in nameless:
        if branch.state == "unknown" and branch.log == part["log"]:
            place = _place(part | {"state": "rolled_back"})
            return replace(branch, system=part["system"], state="rolled_back", place=place)
    return branch


def _decided(parts: list[dict[str, Any]]) -> Decided | None:
    notes = [part for part in parts if part["bqual"] is None]
    if not notes:
        return None
    last = max(notes, key=lambda part: (part["last_time"] or 0, part["evidence_offset"] or 0))
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
