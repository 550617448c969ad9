"""The transactions that Narayana coordinates, by the states that it stores.

In: what a load of its journal lists, or one state. Out: a `Transaction` for each state. Narayana
writes the state when every participant is prepared, so it is the decision; it is deleted when all
are done. Recovery commits again what is left of a decided one, rolls an aborted one back, and
leaves a transaction with a heuristic participant to an operator. A transaction that another
coordinator began waits for that coordinator.
Source: RecoverAtomicAction.replayPhase2 and BasicAction.updateState of Narayana 7.0.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tallystick.records import State, Transaction
from tallystick.systems.jboss.format.bodies import object_state
from tallystick.systems.jboss.format.layout import SYSTEM_NAME, Item
from tallystick.systems.jboss.format.participants import (
    ACTION,
    KINDS,
    TRANSACTION,
    Participant,
    Participants,
    began_elsewhere,
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
        if state is not None and is_transaction(state.type_name):
            place = Place(path_of(item), item.offset, item.length, item.type.name)
            yield transaction_of(log, state.uid_text, state.type_name, state.state, place)


class Place(NamedTuple):
    """Where the state of a transaction stands: file, bytes, and the name of such a record."""

    path: str
    offset: int
    length: int
    evidence: str


def is_transaction(type_name: str) -> bool:
    """Return whether states of this type are those of transactions."""
    return type_name.startswith(ACTION)


def transaction_of(log: str, uid: str, type_name: str, state: bytes, place: Place) -> Transaction:
    """Return the transaction of a state; `State.UNDECIDED` where the state cannot be read.

    A state of another transaction is none: recovery would finish that one twice, and this one
    never.
    """
    known = participants(state, type_name)
    if known is not None and known.uid not in (None, uid):
        known = None
    found = known.found if known else ()
    parent = known.parent if known else None
    xid = parent or next((one.xid for one in found if one.xid is not None), None)
    whole = known is not None and known.complete
    return Transaction(
        SYSTEM_NAME,
        log,
        uid,
        state_of(known, type_name),
        format_id=xid.format_id if xid else None,
        gtrid=xid.gtrid if xid else None,
        bqual=parent.bqual if parent else None,
        name=uid,
        participants=tuple(map(_name, found)),
        open_participants=tuple(_name(one) for one in found if not one.heuristic),
        records=1,
        bytes=place.length,
        files=(place.path,),
        complete=whole,
        holes="" if whole else "participants of another class hide those after them",
        evidence=(place.path, place.offset),
        evidence_type=place.evidence,
        attributes={
            "status": known.status if known else None,
            "began": known.began if known else None,
        }
        | ({} if type_name == TRANSACTION else {"type": type_name}),
    )


def state_of(known: Participants | None, type_name: str = TRANSACTION) -> State:
    """Return the state of a transaction with these participants; None: they are not known."""
    if known is None:
        return State.UNDECIDED
    if any(one.heuristic for one in known.found):
        return State.HEURISTIC
    if known.status is None and not known.complete:
        return State.UNDECIDED
    if known.status == "prepared" and began_elsewhere(type_name):
        return State.PREPARED
    return State.ROLLING_BACK if known.status in _ABORTED else State.COMMITTING


def _name(one: Participant) -> str:
    kind = KINDS.get(one.record_type, f"record type {one.record_type}")
    return one.jndi_name or one.product_name or one.resource_class or kind
