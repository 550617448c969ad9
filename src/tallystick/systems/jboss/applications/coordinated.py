"""The transactions that Narayana coordinates, by the states in its journal.

In: what a load lists. Out: a `Transaction` for each whose state is there. Narayana writes the state
when every participant is prepared, so it is the decision; it is deleted when all are done. Recovery
commits again what is left of a decided one, rolls an aborted one back, and leaves a transaction
with a heuristic participant to an operator.
Source: RecoverAtomicAction.replayPhase2 and BasicAction.updateState of Narayana 7.0.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tallystick.records import State, Transaction
from tallystick.systems.jboss.format.bodies import ObjectState, object_state
from tallystick.systems.jboss.format.layout import SYSTEM_NAME, Item
from tallystick.systems.jboss.format.participants import (
    TRANSACTION,
    Participant,
    Participants,
    participants,
)

EXTENSION = "txlog"
_ABORTED = frozenset({"aborting", "abort_only", "aborted", "heuristic_rollback"})


def coordinated(
    log: str, listed: Iterable[Item], path_of: Callable[[Item], str]
) -> Iterator[Transaction]:
    """Yield the transactions whose states a load lists.

    Args:
        log: the name of the log.
        listed: the records; of those with one id the last counts.
        path_of: gives the path of the file of such a record.
    """
    for item in {item.record_id: item for item in listed}.values():
        state = object_state(item.body or b"")
        if state is not None and state.type_name == TRANSACTION:
            yield _transaction(log, item, state, path_of(item))


def _transaction(log: str, item: Item, state: ObjectState, path: str) -> Transaction:
    known = participants(state.state)
    found = known.found if known else ()
    xid = next((one.xid for one in found if one.xid is not None), None)
    whole = known is not None and known.status is not None
    return Transaction(
        SYSTEM_NAME,
        log,
        state.uid_text,
        state_of(known),
        format_id=xid.format_id if xid else None,
        gtrid=xid.gtrid if xid else None,
        name=state.uid_text,
        participants=tuple(map(_name, found)),
        open_participants=tuple(_name(one) for one in found if not one.heuristic),
        records=1,
        bytes=item.length,
        files=(path,),
        complete=whole,
        holes="" if whole else "participants of another class hide those after them",
        evidence=(path, item.offset),
        evidence_type=item.type.name,
        attributes={"status": known.status if known else None},
    )


def state_of(known: Participants | None) -> State:
    """Return the state of a transaction with these participants; None: they are not known."""
    if known is None:
        return State.UNDECIDED
    if any(one.heuristic for one in known.found):
        return State.HEURISTIC
    return State.ROLLING_BACK if known.status in _ABORTED else State.COMMITTING


def _name(one: Participant) -> str:
    return (
        one.jndi_name or one.product_name or one.resource_class or f"record type {one.record_type}"
    )
