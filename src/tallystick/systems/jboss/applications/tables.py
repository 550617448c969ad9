"""Collections of Artemis's and Narayana's journals, by what their records hold.

In: the committed changes of a journal, raw. Out: `Change`s of one collection with plain values by
name of column. Memory grows with the ids of live records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial

from tallystick.records import Change, Kind
from tallystick.storage.source import is_remote
from tallystick.systems.jboss.format import messages
from tallystick.systems.jboss.format.bodies import object_state
from tallystick.systems.jboss.format.messages import Values
from tallystick.systems.jboss.format.participants import TRANSACTION, Participant, participants
from tallystick.systems.protocol import Collection, Column

Names = Callable[[], dict[int, str]]
"""Gives the names of queues by their ids."""


def _columns(text: str) -> tuple[Column, ...]:
    pairs = (one.split() for one in text.split(","))
    return tuple(Column(name, kind, kind) for name, kind in pairs)


_MESSAGES = Collection(
    "messages",
    _columns(
        "message_id bigint, address string, protocol string, type string, durable boolean, "
        "priority int, timestamp timestamp_ntz, expiration timestamp_ntz, user_id string, "
        "properties string, text string, body binary"
    ),
)
_REFERENCES = Collection("references", _columns("message_id bigint, queue_id bigint, queue string"))
_QUEUES = Collection(
    "queues",
    _columns(
        "queue_id bigint, name string, address string, filter string, metadata string, "
        "auto_created boolean, max_consumers int, purge_on_no_consumers boolean, "
        "routing_type string"
    ),
)
_ADDRESSES = Collection(
    "addresses",
    _columns("address_id bigint, name string, routing_types string, auto_created boolean"),
)
_STATES = Collection("states", _columns("record_id bigint, uid string, type string, state binary"))
_PARTICIPANTS = Collection(
    "participants",
    _columns(
        "record_id bigint, transaction string, status string, position int, heuristic boolean, "
        "record_type int, uid string, format_id int, gtrid binary, bqual binary, outcome string, "
        "committed boolean, product_name string, product_version string, jndi_name string, "
        "resource_class string"
    ),
)

COLLECTIONS = {
    "amq": (_MESSAGES, _REFERENCES),
    "bindings": (_ADDRESSES, _QUEUES),
    "txlog": (_STATES, _PARTICIPANTS),
}
"""Collections by the extension of a journal's files."""


def collection_changes(name: str, changes: Iterable[Change], names: Names) -> Iterator[Change]:
    """Yield the changes of a collection.

    Args:
        name: the name of the collection.
        changes: all changes of the journal from its beginning.
        names: gives the queues' names, for references.
    """
    if name == _REFERENCES.name:
        yield from _references(changes, names)
        return
    if name == _PARTICIPANTS.name:
        yield from _participants(changes)
        return
    live = set[str]()
    for one in changes:
        if one.kind is Kind.DELETE:
            if one.key in live:
                live.remove(one.key)
                yield replace(one, collection=name, values=None)
        elif (values := _ROWS[name](one)) is not None:
            known = one.key in live
            live.add(one.key)
            kind = Kind.UPDATE if known else Kind.ADD
            yield replace(one, collection=name, kind=kind, values=dict(values))


def _user_type(one: Change) -> int | None:
    found = (one.values or {}).get("user_type")
    return found if isinstance(found, int) else None


def _message(one: Change) -> Values | None:
    kind = _user_type(one)
    if kind not in messages.MESSAGES or one.kind is not Kind.ADD:
        return None
    return (messages.message(kind, one.after or b"") or {}) | {"message_id": int(one.key)}


def _binding(user_type: int, read: Callable[[bytes], Values | None], one: Change) -> Values | None:
    if _user_type(one) != user_type:
        return None
    identity = "queue_id" if user_type == messages.QUEUE else "address_id"
    return {identity: int(one.key)} | (read(one.after or b"") or {})


def _state(one: Change) -> Values | None:
    found = object_state(one.after or b"")
    if found is None:
        return None
    names = {"uid": found.uid_text, "type": found.type_name, "state": found.state.hex()}
    return {"record_id": int(one.key), **names}


_ROWS: dict[str, Callable[[Change], Values | None]] = {
    _MESSAGES.name: _message,
    _QUEUES.name: partial(_binding, messages.QUEUE, messages.queue),
    _ADDRESSES.name: partial(_binding, messages.ADDRESS, messages.address),
    _STATES.name: _state,
}


def _references(changes: Iterable[Change], names: Names) -> Iterator[Change]:
    live: dict[str, set[int]] = {}
    known: dict[int, str] | None = None
    for one in changes:
        if one.kind is Kind.DELETE:
            for number in sorted(live.pop(one.key, ())):
                yield _reference(one, number, Kind.DELETE, None)
            continue
        kind, queue = _user_type(one), messages.queue_id(one.after or b"")
        if queue is None:
            continue
        if kind == messages.REFERENCE:
            known = names() if known is None else known
            live.setdefault(one.key, set()).add(queue)
            row: Values = {"message_id": int(one.key), "queue_id": queue}
            yield _reference(one, queue, Kind.ADD, row | {"queue": known.get(queue)})
        elif kind == messages.ACKNOWLEDGED and queue in live.get(one.key, ()):
            live[one.key].remove(queue)
            yield _reference(one, queue, Kind.DELETE, None)


def _reference(one: Change, number: int, kind: Kind, values: Values | None) -> Change:
    return replace(
        one, collection=_REFERENCES.name, kind=kind, key=f"{one.key}:{number}", values=values
    )


def _participants(changes: Iterable[Change]) -> Iterator[Change]:
    """Yield what each new state of a transaction changes in its participants."""
    live: dict[str, dict[str, Values]] = {}
    for one in changes:
        before = live.pop(one.key, {})
        after = {} if one.kind is Kind.DELETE else _participant_rows(one)
        if after:
            live[one.key] = after
        for key in {**before, **after}:
            row = after.get(key)
            if row == before.get(key):
                continue
            kind = Kind.DELETE if row is None else Kind.UPDATE if key in before else Kind.ADD
            yield replace(
                one, collection=_PARTICIPANTS.name, kind=kind, key=f"{one.key}:{key}", values=row
            )


def _participant_rows(one: Change) -> dict[str, Values]:
    """Return the participants in a state, by Uid, or by place where they have none."""
    state = object_state(one.after or b"")
    if state is None or state.type_name != TRANSACTION:
        return {}
    named: Values = {"record_id": int(one.key), "transaction": state.uid_text}
    known = participants(state.state)
    if known is None:
        return {"0": named}
    return {
        part.uid or str(position): named
        | {"status": known.status, "position": position}
        | _participant(part)
        for position, part in enumerate(known.found)
    }


def _participant(part: Participant) -> Values:
    xid = part.xid
    found: Values = {} if xid is None else {
        "format_id": xid.format_id, "gtrid": xid.gtrid.hex(), "bqual": xid.bqual.hex()
    }  # fmt: skip
    names = (field.name for field in fields(part) if field.name != "xid")
    return found | {name: getattr(part, name) for name in names}


def queue_names(changes: Iterable[Change]) -> dict[int, str]:
    """Return the names of queues by the changes of a journal of bindings."""
    found: dict[int, str] = {}
    for one in changes:
        if _user_type(one) == messages.QUEUE:
            name = (messages.queue(one.after or b"") or {}).get("name")
            if isinstance(name, str):
                found[int(one.key)] = name  # also of one that was deleted since
    return found


def queue_addresses(changes: Iterable[Change]) -> dict[int, str]:
    """Return the addresses of queues, deleted ones too, by the changes of a journal of bindings."""
    queues = (one for one in changes if _user_type(one) == messages.QUEUE)
    return {int(one.key): messages.queue_address(one.after or b"") for one in queues}


def bindings_beside(folder: str) -> list[tuple[str, list[str]]]:
    """Return folders and files of journals of bindings in a folder of messages, or beside it."""
    found = []
    above = os.path.dirname(folder.rstrip("/"))  # noqa: PTH120
    for place in () if is_remote(folder) else (folder, f"{above}/bindings"):
        with suppress(OSError):
            names = sorted(name for name in os.listdir(place) if ".bindings" in name)  # noqa: PTH208
            found.append((place, [f"{place}/{name}" for name in names]))
    return [(place, files) for place, files in found if files]
