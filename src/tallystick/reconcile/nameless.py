"""Branches that were ended from outside and lost their names, matched with global transactions.

Some systems (`ResourceTraits.nameless_end`) write a bare commit or rollback over the prepare record
of a branch that is decided from outside. Such a record belongs to a global transaction that names
this resource and has no branch in its log: the likeliest state first, then the newest.

In: per log, what claims a branch there and the bare records. Out: pairs of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tallystick.records import State
from tallystick.systems.registry import resource_traits

LIKELIHOOD = (State.COMMITTED, State.UNDECIDED, State.COMMITTING)
"""States by how likely a transaction in it has a branch that was ended by hand, last first.

Open decisions wait for an operator; undecided ones were rolled back by recovery.
"""

Row = dict[str, Any]


ENDED = (State.COMMITTED, State.ROLLED_BACK)
"""States of branches that were ended."""


def is_bare_end(transaction: Row, attributes: Mapping[str, Any]) -> bool:
    """Return True for the end of a branch without the name of the branch."""
    mark = resource_traits(transaction["system"]).nameless_end
    marked = bool(mark and attributes.get(mark))
    return marked and transaction["gtrid"] is None and transaction["state"] in ENDED


def likelihood(state: str) -> int:
    """Return the rank of a state in `LIKELIHOOD`, from 1; 0 for others."""
    return next((n for n, one in enumerate(LIKELIHOOD, 1) if one == state), 0)


def matched(claims: Iterable[Row], bare: Iterable[Row]) -> list[tuple[Row, Row]]:
    """Return which bare end of one log belongs to which claim of a branch there.

    Rollbacks come first: which branch a record ended is not sure, and a rollback may be an alarm.
    """
    best: dict[tuple[int, bytes], Row] = {}
    for claim in sorted(claims, key=_order, reverse=True):
        best.setdefault((claim["format_id"], bytes(claim["gtrid"])), claim)
    newest = sorted(bare, key=_age, reverse=True)
    return list(zip(best.values(), newest, strict=False))


def _age(bare: Row) -> tuple[bool, int]:
    return bare["state"] == State.ROLLED_BACK.value, bare["evidence_offset"] or 0


def _order(claim: Row) -> tuple[int, int, bytes]:
    return likelihood(claim["state"]), claim["last_time"] or 0, bytes(claim["gtrid"])
