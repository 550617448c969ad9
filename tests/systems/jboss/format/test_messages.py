"""Messages, queues and addresses as Artemis writes them."""

from __future__ import annotations

import json
import struct
from uuid import UUID

import pytest

from tallystick.systems.jboss.format import messages
from tallystick.systems.jboss.format.messages import LARGE_MESSAGE, MESSAGE, OLD_MESSAGE

USER = UUID("12345678-1234-1234-1234-123456789abc")
TEXT, BYTES, MAP = 3, 4, 5


def text(value: str) -> bytes:
    data = value.encode("utf-16-le")
    return struct.pack(">i", len(data)) + data


def nullable(value: str | None) -> bytes:
    return b"\0" if value is None else b"\1" + text(value)


PROPERTIES = (
    b"\1"
    + struct.pack(">i", 10)
    + text("text") + b"\x0a" + text("é€")
    + text("flag") + b"\x02\x01"
    + text("byte") + b"\x03\xff"
    + text("short") + b"\x05\xff\xfe"
    + text("int") + b"\x06" + struct.pack(">i", -3)
    + text("long") + b"\x07" + struct.pack(">q", 1 << 40)
    + text("double") + b"\x09" + struct.pack(">d", 2.5)
    + text("bytes") + b"\x04" + struct.pack(">i", 2) + b"\0\xff"
    + text("none") + b"\0"
    + text("char") + b"\x0b\xff\xfd"
)  # fmt: skip


def headers(
    kind: int, properties: bytes = b"\0", user: bytes = b"\0", expiration: int = 0
) -> bytes:
    moments = struct.pack(">qq", expiration, 1_700_000_000_123)
    return (
        struct.pack(">q", 7)
        + nullable("orders")
        + user
        + bytes((kind, 1))
        + moments
        + b"\4"
        + properties
    )


def core(content: bytes, rest: bytes) -> bytes:
    whole = struct.pack(">i", len(content) + 13) + content + rest
    return b"\1" + struct.pack(">q", 7) + nullable("orders") + struct.pack(">i", len(whole)) + whole


def test_a_core_message_has_its_headers_properties_and_text() -> None:
    body = core(nullable("Grüße"), headers(TEXT, PROPERTIES, b"\1" + USER.bytes, 1_700_000_060_000))
    found = messages.message(MESSAGE, body)
    assert found is not None
    properties = found.pop("properties")
    assert isinstance(properties, str)
    assert json.loads(properties) == {
        "text": "é€", "flag": True, "byte": -1, "short": -2, "int": -3, "long": 1 << 40,
        "double": 2.5, "bytes": "00ff", "none": None, "char": "\ufffd",
    }  # fmt: skip
    assert found == {
        "protocol": "core",
        "message_id": 7,
        "address": "orders",
        "user_id": str(USER),
        "type": "text",
        "durable": True,
        "expiration": "2023-11-14 22:14:20",
        "timestamp": "2023-11-14 22:13:20.123000",
        "priority": 4,
        "text": "Grüße",
        "body": nullable("Grüße").hex(),
    }


def test_properties_are_valid_json_whatever_their_numbers_are() -> None:
    words = ("NaN", "Infinity", "-Infinity")
    each = (text(word) + b"\x09" + struct.pack(">d", float(word)) for word in words)
    properties = b"\1" + struct.pack(">i", len(words)) + b"".join(each)
    found = messages.message(MESSAGE, core(b"", headers(BYTES, properties)))
    assert found is not None
    inner = json.loads(str(found["properties"]), parse_constant=pytest.fail)
    assert inner == {word: word for word in words}


def test_bodies_are_read_by_their_type() -> None:
    mapped = messages.message(MESSAGE, core(PROPERTIES, headers(MAP)))
    assert mapped is not None
    assert json.loads(str(mapped["text"]))["text"] == "é€"
    raw = messages.message(MESSAGE, core(b"\0\1\2", headers(BYTES)))
    assert raw is not None
    assert (raw["type"], raw["body"], "text" in raw) == ("bytes", "000102", False)
    other = messages.message(MESSAGE, core(b"no text", headers(TEXT)))  # of another client
    assert other is not None
    assert (other["body"], "text" in other) == (b"no text".hex(), False)


def test_messages_of_other_protocols_are_named() -> None:
    large = messages.message(LARGE_MESSAGE, headers(BYTES, PROPERTIES))
    assert large is not None
    assert (large["protocol"], large["address"], "body" in large) == (
        "core, large",
        "orders",
        False,
    )
    amqp = messages.message(MESSAGE, b"\2" + struct.pack(">q", 9) + b"anything")
    assert amqp == {"protocol": "amqp", "message_id": 9}
    later = messages.message(MESSAGE, b"\x63" + struct.pack(">q", 9))
    assert later == {"protocol": "number 99", "message_id": 9}
    assert messages.message(OLD_MESSAGE, b"") == {"protocol": "core, before 2.0"}


def test_a_message_that_is_cut_is_none() -> None:
    whole = core(nullable("Grüße"), headers(TEXT, PROPERTIES))
    for size in range(len(whole)):
        assert messages.message(MESSAGE, whole[:size]) is None


def test_sizes_that_do_not_fit_are_none() -> None:
    for size in (-1, 1 << 30):
        bad = b"\1" + struct.pack(">q", 7) + nullable("orders") + struct.pack(">i", size)
        assert messages.message(MESSAGE, bad) is None
    many = b"\1" + struct.pack(">i", -5)
    found = messages.message(MESSAGE, core(b"", headers(BYTES, many)))
    assert found is not None
    assert found["properties"] == "{}"
    unknown = b"\1" + struct.pack(">i", 1) + text("x") + b"\x63"
    assert messages.message(MESSAGE, core(b"", headers(BYTES, unknown))) is None


QUEUE = text("orders") + text("address") + nullable("n > 2") + nullable("user=me;") + b"\1"


def test_queues_have_what_their_version_wrote() -> None:
    old = {
        "name": "orders", "address": "address", "filter": "n > 2", "metadata": "user=me;",
        "auto_created": True,
    }  # fmt: skip
    assert messages.queue(QUEUE) == old
    newer = QUEUE + struct.pack(">i", -1) + b"\0\1" + b"more of later versions"
    kinds = {"max_consumers": -1, "purge_on_no_consumers": False, "routing_type": "anycast"}
    assert messages.queue(newer) == old | kinds
    assert messages.queue(QUEUE[:-1]) is None


@pytest.mark.parametrize(("kind", "name"), [(0, "default"), (99, "99"), (255, "-1")])
def test_the_kind_of_a_body_is_named_or_its_number(kind: int, name: str) -> None:
    found = messages.message(MESSAGE, core(b"", headers(kind)))
    assert found is not None
    assert found["type"] == name


def test_numbers_of_a_message_have_signs() -> None:
    signed = struct.pack(">q", -7) + headers(BYTES)[8:]
    found = messages.message(LARGE_MESSAGE, signed.replace(b"\4\0", b"\xff\0"))
    assert found is not None
    assert (found["message_id"], found["priority"]) == (-7, -1)


def test_the_queue_of_a_reference_is_its_first_eight_bytes() -> None:
    assert messages.queue_id((-5).to_bytes(8, signed=True) + b"\1") == -5
    assert messages.queue_id(bytes(7)) is None


def test_an_address_of_a_kind_that_is_not_known_keeps_its_place() -> None:
    found = messages.address(text("news") + struct.pack(">i", 2) + b"\0\7" + b"\0")
    assert found == {"name": "news", "routing_types": "multicast, ", "auto_created": False}


def test_addresses() -> None:
    body = text("news") + struct.pack(">i", 2) + b"\0\1" + b"\1\0"
    names = {"name": "news", "routing_types": "multicast, anycast", "auto_created": True}
    assert messages.address(body) == names
    assert messages.address(body[:-3]) is None


@pytest.mark.parametrize(("body", "number"), [(b"\0" * 7 + b"\5", 5), (b"\0\5", None)])
def test_references_have_the_id_of_a_queue(body: bytes, number: int | None) -> None:
    assert messages.queue_id(body) == number
