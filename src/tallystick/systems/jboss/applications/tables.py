"""Collections of Artemis's and Narayana's journals, by what their records hold.

In: the committed changes of a journal, raw. Out: `Change`s of one collection with plain values by
name of column. Memory grows with the ids of live records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache, partial
from itertools import chain
from typing import Protocol

from tallystick.records import Change, Fate, Kind, Row
from tallystick.storage.source import folder_above, is_remote
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


MESSAGES = Collection(
    "messages",
    _columns(
        "message_id bigint, address string, protocol string, type string, durable boolean, "
        "priority int, timestamp timestamp_ntz, expiration timestamp_ntz, user_id string, "
        "properties string, text string, body binary"
    ),
)
REFERENCES = Collection("references", _columns("message_id bigint, queue_id bigint, queue string"))
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
    "amq": (MESSAGES, REFERENCES),
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
    follow = _follower(name, names)
    return chain.from_iterable(follow(one, last=True) for one in changes)


def collection_rows(kept: Iterable[Collection], rows: Iterable[Row], names: Names) -> Iterator[Row]:
    """Yield the rows of some collections, and as they are those of which none is made.

    Only committed changes are followed by others: of the rest each begins where these ended.
    A reference is also called by its queue, a message by its address. Memory grows with these.
    """
    followers = [_follower(one.name, names) for one in kept]
    called: dict[tuple[str, str], tuple[str, ...]] = {}
    for row in rows:
        last = row.fate is Fate.COMMITTED
        found = [change for follow in followers for change in follow(row.change, last=last)]
        for change in found or [row.change]:
            place = change.collection, change.key
            mine = _called(change) or called.get(place, ())
            if last and change.kind is Kind.DELETE:
                called.pop(place, None)
            elif last and mine:
                called[place] = mine
            yield Row(row.fate, change, mine)


def _called(change: Change) -> tuple[str, ...]:
    """Return the queue or address that a row names."""
    values = change.values or {}
    return tuple(str(values[one]) for one in ("queue", "queue_id", "address") if values.get(one))


class _Follower(Protocol):
    def __call__(self, one: Change, *, last: bool) -> Iterator[Change]:
        """Yield what a raw change does to a collection; with ``last`` the next one follows it."""
        ...


def _follower(name: str, names: Names) -> _Follower:
    if name == REFERENCES.name:
        return _References(names)
    return _Participants() if name == _PARTICIPANTS.name else _Records(name)


class _Records:
    """A collection of which each record is a row."""

    def __init__(self, name: str) -> None:
        self._name, self._live = name, set[str]()

    def __call__(self, one: Change, *, last: bool) -> Iterator[Change]:
        known = one.key in self._live
        if one.kind is Kind.DELETE:
            if known:
                yield replace(one, collection=self._name, values=None)
            if last:
                self._live.discard(one.key)
        elif (values := _ROWS[self._name](one)) is not None:
            kind = Kind.UPDATE if known else Kind.ADD
            yield replace(one, collection=self._name, kind=kind, values=dict(values))
            if last:
                self._live.add(one.key)


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
    MESSAGES.name: _message,
    _QUEUES.name: partial(_binding, messages.QUEUE, messages.queue),
    _ADDRESSES.name: partial(_binding, messages.ADDRESS, messages.address),
    _STATES.name: _state,
}


class _References:
    """Which queues hold which messages."""

    def __init__(self, names: Names) -> None:
        self._names, self._live = cache(names), dict[str, set[int]]()

    def __call__(self, one: Change, *, last: bool) -> Iterator[Change]:
        live = self._live.get(one.key, set())
        if one.kind is Kind.DELETE:
            for number in sorted(live):
                yield _reference(one, number, Kind.DELETE, None)
            if last:
                self._live.pop(one.key, None)
            return
        kind, queue = _user_type(one), messages.queue_id(one.after or b"")
        if queue is None:
            return
        if kind == messages.REFERENCE:
            row: Values = {"message_id": int(one.key), "queue_id": queue}
            yield _reference(one, queue, Kind.ADD, row | {"queue": self._names().get(queue)})
            if last:
                self._live[one.key] = live | {queue}
        elif kind == messages.ACKNOWLEDGED and queue in live:
            yield _reference(one, queue, Kind.DELETE, None)
            if last:
                live.remove(queue)


def _reference(one: Change, number: int, kind: Kind, values: Values | None) -> Change:
    return replace(
        one, collection=REFERENCES.name, kind=kind, key=f"{one.key}:{number}", values=values
    )


class _Participants:
    """What each new state of a transaction changes in its participants."""

    def __init__(self) -> None:
        self._live: dict[str, dict[str, Values]] = {}

    def __call__(self, one: Change, *, last: bool) -> Iterator[Change]:
        before = self._live.get(one.key, {})
        after = {} if one.kind is Kind.DELETE else _participant_rows(one)
        if last:
            self._live.pop(one.key, None)
            if after:
                self._live[one.key] = after
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
    above = folder_above(folder)
    for place in () if is_remote(folder) else (folder, f"{above}/bindings"):
        with suppress(OSError):
            names = sorted(name for name in os.listdir(place) if ".bindings" in name)  # noqa: PTH208
            found.append((place, [f"{place}/{name}" for name in names]))
    return [(place, files) for place, files in found if files]
