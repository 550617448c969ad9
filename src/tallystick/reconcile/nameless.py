"""Branches that were rolled back and lost their names, matched with global transactions.

Some systems (`ResourceTraits.nameless_rollback`) write a bare rollback over the prepare record of a
branch that is decided from outside, and for nothing else. Such a record belongs to a global
transaction that names this resource and has no branch in its log: the likeliest state first, then
the newest.

In: per log, what claims a branch there and the bare records. Out: pairs of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tallystick.records import State
from tallystick.systems.registry import resource_traits

LIKELIHOOD = (State.COMMITTED, State.UNDECIDED, State.COMMITTING)
"""States by how likely a transaction in it has a branch that was rolled back by hand, last first.

Open decisions wait for an operator; undecided ones were rolled back by recovery.
"""

Row = dict[str, Any]


def is_bare_rollback(transaction: Row) -> bool:
    """Return True for a rollback without the name of its branch."""
    kind = resource_traits(transaction["system"]).nameless_rollback
    return (
        bool(kind)
        and transaction["gtrid"] is None
        and transaction["state"] == State.ROLLED_BACK.value
        and transaction["evidence_type"] == kind
    )


def likelihood(state: str) -> int:
    """Return the rank of a state in `LIKELIHOOD`, from 1; 0 for others."""
    return next((n for n, one in enumerate(LIKELIHOOD, 1) if one == state), 0)


def matched(claims: Iterable[Row], bare: Iterable[Row]) -> list[tuple[Row, Row]]:
    """Return which bare rollback of one log belongs to which claim of a branch there."""
    best: dict[tuple[int, bytes], Row] = {}
    for claim in sorted(claims, key=_order, reverse=True):
        best.setdefault((claim["format_id"], bytes(claim["gtrid"])), claim)
    newest = sorted(bare, key=lambda one: one["evidence_offset"] or 0, reverse=True)
    return list(zip(best.values(), newest, strict=False))


def _order(claim: Row) -> tuple[int, int, bytes]:
    return likelihood(claim["state"]), claim["last_time"] or 0, bytes(claim["gtrid"])
