"""Collections of journals as Artemis and Narayana write them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from tallystick.errors import LogUnreadableError
from tallystick.records import Kind
from tallystick.systems.jboss.format.bodies import ObjectState, pack_object_state
from tallystick.systems.jboss.format.messages import (
    ACKNOWLEDGED,
    ADDRESS,
    MESSAGE,
    QUEUE,
    REFERENCE,
)
from tallystick.systems.jboss.format.participants import TRANSACTION
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings
from tallystick.systems.jboss.reader import JournalReading
from tests.systems.jboss.build import read
from tests.systems.jboss.format import test_messages as encoded
from tests.systems.jboss.format import test_participants as parts

Shown = list[tuple[Kind, str, Mapping[str, object] | None]]


def shown(reading: JournalReading, name: str) -> Shown:
    return [(one.kind, one.key, one.values) for one in reading.changes_of(name)]


def journal(folder: Path, prefix: str, extension: str) -> CircularJournal:
    folder.mkdir()
    return CircularJournal(
        str(folder), JournalSettings(prefix=prefix, extension=extension, file_size=1 << 16)
    )


def queue(number: int) -> bytes:
    return struct.pack(">q", number)


def write_messages(folder: Path) -> None:
    """Two messages in two queues, of which one is taken; a third is of a transaction given up."""
    with journal(folder, "activemq-data", "amq") as log:
        for number, words in ((7, "one"), (8, "two")):
            body = encoded.core(encoded.nullable(words), encoded.headers(encoded.TEXT))
            log.append_add_record(number, MESSAGE, body)
            log.append_update_record(number, REFERENCE, queue(3))
            log.append_update_record(number, REFERENCE, queue(4))
        log.append_add_record(9, 37, b"an id that must not come twice")
        log.append_add_record_transactional(1, 10, MESSAGE, b"\2" + queue(10))
        log.append_rollback_record(1)
        log.append_update_record(7, ACKNOWLEDGED, queue(3))
        log.append_update_record(7, ACKNOWLEDGED, queue(5))
        log.append_delete_record(9)
        log.append_delete_record(7).wait()


def write_bindings(folder: Path) -> None:
    with journal(folder, "activemq-bindings", "bindings") as log:
        log.append_add_record(2, ADDRESS, encoded.text("news") + struct.pack(">i", 1) + b"\0\0")
        body = encoded.text("left") + encoded.text("news") + b"\0\0\0"
        log.append_add_record(3, QUEUE, body).wait()


def test_messages_come_and_go(tmp_path: Path) -> None:
    write_messages(tmp_path / "journal")
    found = shown(read(tmp_path / "journal"), "messages")
    assert [(kind, key) for kind, key, _ in found] == [
        (Kind.ADD, "7"),
        (Kind.ADD, "8"),
        (Kind.DELETE, "7"),
    ]
    assert [values and (values["message_id"], values["text"]) for _, _, values in found] == [
        (7, "one"),
        (8, "two"),
        None,
    ]


def test_references_have_names_from_the_bindings_beside(tmp_path: Path) -> None:
    write_messages(tmp_path / "journal")
    write_bindings(tmp_path / "bindings")
    found = shown(read(tmp_path / "journal"), "references")
    row = {"message_id": 7, "queue_id": 3, "queue": "left"}
    assert found[:2] == [
        (Kind.ADD, "7:3", row),
        (Kind.ADD, "7:4", row | {"queue_id": 4, "queue": None}),
    ]
    assert [(kind, key) for kind, key, _ in found[2:]] == [
        (Kind.ADD, "8:3"),
        (Kind.ADD, "8:4"),
        (Kind.DELETE, "7:3"),
        (Kind.DELETE, "7:4"),
    ]


def test_queues_and_addresses(tmp_path: Path) -> None:
    write_bindings(tmp_path / "bindings")
    reading = read(tmp_path / "bindings")
    assert [one.name for one in reading.collections()] == ["addresses", "queues"]
    ((_, _, values),) = shown(reading, "queues")
    assert values is not None
    assert (values["queue_id"], values["name"], values["address"]) == (3, "left", "news")
    ((_, _, values),) = shown(reading, "addresses")
    names = {"address_id": 2, "name": "news", "routing_types": "multicast", "auto_created": False}
    assert values == names


def test_states_of_narayana(tmp_path: Path) -> None:
    first = ObjectState(bytes(27) + b"\1", "Test/Kind", b"first")
    with journal(tmp_path / "tx", "jbossts", "txlog") as log:
        log.append_add_record(1, 0, pack_object_state(first))
        later = ObjectState(first.uid, first.type_name, b"later")
        log.append_update_record(1, 0, pack_object_state(later))
        log.append_delete_record(1).wait()
    row = {"record_id": 1, "uid": "0:0:0:0:1", "type": "Test/Kind", "state": b"first".hex()}
    assert shown(read(tmp_path / "tx"), "states") == [
        (Kind.ADD, "1", row),
        (Kind.UPDATE, "1", row | {"state": b"later".hex()}),
        (Kind.DELETE, "1", None),
    ]


def test_participants_of_narayana_s_transactions(tmp_path: Path) -> None:
    def stored(raw: bytes) -> bytes:
        return pack_object_state(ObjectState(bytes(27) + b"\1", TRANSACTION, raw))

    with journal(tmp_path / "tx", "jbossts", "txlog") as log:
        log.append_add_record(1, 0, stored(parts.state(parts.branch())))
        log.append_update_record(1, 0, stored(parts.state(b"", parts.branch(parts.ROLLED_BACK))))
        log.append_update_record(1, 0, stored(b"of another version"))
        log.append_delete_record(1).wait()
    found = shown(read(tmp_path / "tx"), "participants")
    assert [(kind, key) for kind, key, _ in found] == [
        (Kind.ADD, "1:0:0:0:0:7"),
        (Kind.UPDATE, "1:0:0:0:0:7"),
        (Kind.DELETE, "1:0:0:0:0:7"),
        (Kind.ADD, "1:0"),
        (Kind.DELETE, "1:0"),
    ]
    first, second, unknown = (values for _, _, values in found if values is not None)
    wanted = {
        "record_id": 1, "transaction": "0:0:0:0:1", "status": "committing", "position": 0,
        "gtrid": parts.XID.gtrid.hex(), "bqual": parts.XID.bqual.hex(), "jndi_name": "java:/db",
        "outcome": "finish_ok", "heuristic": False,
    }  # fmt: skip
    assert {name: first[name] for name in wanted} == wanted
    assert second == {**first, "outcome": "heuristic_rollback", "heuristic": True}
    assert unknown == {"record_id": 1, "transaction": "0:0:0:0:1"}


def test_changes_between_places_are_those_of_a_part(tmp_path: Path) -> None:
    write_messages(tmp_path / "journal")
    reading = read(tmp_path / "journal")
    whole = [*reading.changes_of("references")]
    places = sorted({one.commit_sequence for one in whole})
    last = max(one.commit_sequence for one in reading.changes())
    for place in places:
        assert [*reading.changes_of("references", place, last)] == [
            one for one in whole if one.commit_sequence > place
        ]
    assert [*reading.changes_of("references", None, places[2])] == [
        one for one in whole if one.commit_sequence <= places[2]
    ]
    with pytest.raises(LogUnreadableError):  # no record ends there
        list(reading.changes_of("references", places[0] - 2, last))
