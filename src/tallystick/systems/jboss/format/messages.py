"""Records of Artemis: messages, references of queues to messages, queues, addresses.

In: the body of a record and its user type. Out: plain values by name of column; None where the
bytes are something else. Source: docs/formats/jboss.md, section "Records of Artemis".
"""

from __future__ import annotations

import datetime
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from tallystick.errors import LogFormatError
from tallystick.records import jsonable

QUEUE, IDS_GIVEN, ADDRESS = 21, 24, 44
LARGE_MESSAGE, OLD_MESSAGE, MESSAGE = 30, 31, 45
UNFINISHED_LARGE = 29
"""User type of a large message of which only part has come; its record begins with the id."""
REFERENCE, ACKNOWLEDGED = 32, 33
"""User types of records; a reference and its end are updates of the message's record."""

PAGE_COUNT, PAGE_COUNTED = 40, 41
"""User types of how many messages of a queue are in pages: a count, and what was added since."""
COUNTERS = (PAGE_COUNT, PAGE_COUNTED)
PAGE_TRANSACTION = 35
"""User type of a transaction with messages in pages; deleted when all of them were taken."""
PAGE_TAKEN = (MESSAGE_TAKEN, ALL_TAKEN) = (39, 42)
"""User types of what a queue has taken from a page: a message, or the whole page."""
POSITION = struct.Struct(">qi")
"""A page, and a message in it, from 0 on."""

MESSAGES = (LARGE_MESSAGE, OLD_MESSAGE, MESSAGE)

Plain = str | int | bool | None
Values = dict[str, Plain]

_LARGE_SIZE, _PACKED = "_AMQ_LARGE_SIZE", "_AMQ_LARGE_COMPRESSED"
"""Properties of a large message: the size of its body, and whether its file is packed."""
CORE = 1
"""The number of the protocol core."""
_AMQP = range(2, 6)
HEAD_AFTER_BODY = 13
"""What the number before the body counts besides the body."""
BODY_KINDS = {0: "default", 2: "object", 3: "text", 4: "bytes", 5: "map", 6: "stream"}
_ROUTING = {0: "multicast", 1: "anycast"}

FIXED = {2: ">?", 3: ">b", 5: ">h", 6: ">i", 7: ">q", 8: ">f", 9: ">d"}
"""The numbers among properties, as `struct` spells them, by the code of the type."""
FLAG, FLOAT, DOUBLE = 2, 8, 9
"""Those of them that are no whole numbers."""
NULL, BYTES, STRING, CHAR = 0, 4, 10, 11
"""Types of properties, besides those of fixed length."""


class _Reader:
    """Reads Artemis's encodings; raises `LogFormatError` where the bytes end.

    ``errors`` says what becomes of a half of a surrogate pair, which Java allows in a text.
    """

    def __init__(self, data: bytes, errors: str = "replace") -> None:
        self.data, self.at, self.errors = data, 0, errors

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise LogFormatError("a record ends early", offset=self.at, expected=f"{size} bytes")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def flag(self) -> bool:
        return self.take(1) != b"\0"

    def text(self) -> str:
        return decoded(self.take(self.number(">i")), self.errors)

    def text_or_none(self) -> str | None:
        return self.text() if self.flag() else None

    def properties(self) -> dict[str, tuple[int, object]]:
        """Return code of the type and value of each property."""
        count = self.number(">i") if self.flag() else 0
        return {self.text(): self._value(self.number(">b")) for _ in range(count)}

    def _value(self, kind: int) -> tuple[int, object]:
        if kind in FIXED:
            form = FIXED[kind]
            return kind, struct.unpack(form, self.take(struct.calcsize(form)))[0]
        if kind == STRING:
            return kind, self.text()
        if kind == CHAR:
            return kind, chr(self.number(">H"))
        if kind == BYTES:
            return kind, self.take(self.number(">i")).hex()
        if kind == NULL:
            return kind, None
        raise LogFormatError("unknown type of a property", offset=self.at, found=str(kind))


def decoded(text: bytes, errors: str = "replace") -> str:
    """Return a text; ``errors`` says what becomes of a half of a surrogate pair."""
    return text.decode("utf-16-le", errors)


def _shown(properties: Mapping[str, tuple[int, object]]) -> str:
    named = {name: jsonable(value) for name, (_, value) in properties.items()}
    return json.dumps(named, ensure_ascii=False)


@dataclass(slots=True)
class CoreMessage:
    """A message as the broker stores it.

    Attributes:
        kind: the code of its type, as in `BODY_KINDS`.
        expiration: in milliseconds; 0 for never.
        timestamp: in milliseconds.
        properties: code of the type and value by name; bytes as hexadecimal digits.
        body: None of a large one, whose body is a file.
    """

    message_id: int
    address: str | None
    user_id: bytes | None
    kind: int
    durable: bool
    expiration: int
    timestamp: int
    priority: int
    properties: dict[str, tuple[int, object]] = field(default_factory=dict)
    body: bytes | None = None

    def columns(self) -> Values:
        """Return the columns of the collection of messages that the headers fill."""
        return {
            "message_id": self.message_id,
            "address": self.address,
            "user_id": None if self.user_id is None else str(UUID(bytes=self.user_id)),
            "type": BODY_KINDS.get(self.kind, str(self.kind)),
            "durable": self.durable,
            "expiration": moment(self.expiration),
            "timestamp": moment(self.timestamp),
            "priority": self.priority,
            "properties": _shown(self.properties),
        }


def core_message(user_type: int, body: bytes, errors: str = "replace") -> CoreMessage | None:
    """Return a message; None of another protocol, and where the bytes are something else."""
    reader = _Reader(body, errors)
    try:
        if user_type == LARGE_MESSAGE:
            return _headers(reader)
        if user_type != MESSAGE or reader.number(">b") != CORE:
            return None
        reader.number(">q")
        reader.text_or_none()
        encoded = _Reader(reader.take(reader.number(">i")), errors)
        content = encoded.take(encoded.number(">i") - HEAD_AFTER_BODY)
        found = _headers(encoded)
    except LogFormatError:
        return None
    found.body = content
    return found


def size_of_message(body: bytes) -> int:
    """Return how many bytes the record of a `MESSAGE` has that these begin with; 0 of no core one.

    A page has more after it, which a journal has not.
    """
    reader = _Reader(body)
    try:
        if reader.number(">b") != CORE:
            return 0
        reader.number(">q")
        reader.text_or_none()
        reader.take(reader.number(">i"))
    except LogFormatError:
        return 0
    return reader.at


def message(user_type: int, body: bytes) -> Values | None:
    """Return the columns of a message."""
    if user_type == OLD_MESSAGE:
        return {"protocol": "core, before 2.0"}
    protocol = int.from_bytes(body[:1], signed=True)
    if user_type == MESSAGE and protocol != CORE:
        name = "amqp" if protocol in _AMQP else f"number {protocol}"
        return None if len(body) < 9 else {
            "protocol": name, "message_id": int.from_bytes(body[1:9], signed=True)
        }  # fmt: skip
    found = core_message(user_type, body)
    if found is None:
        return None
    if found.body is None:
        return {"protocol": "core, large"} | found.columns()
    return {"protocol": "core"} | found.columns() | _content(found)


def _content(found: CoreMessage) -> Values:
    """Return the body of a message, and its text where it has one."""
    content = found.body or b""
    inside, text = _Reader(content), Values()
    try:
        match BODY_KINDS.get(found.kind):
            case "text":
                text["text"] = inside.text_or_none()
            case "map":
                text["text"] = _shown(inside.properties())
    except LogFormatError:
        pass  # another client may have given the type and put in something else
    return text | {"body": content.hex()}


def _headers(reader: _Reader) -> CoreMessage:
    return CoreMessage(
        message_id=reader.number(">q"),
        address=reader.text_or_none(),
        user_id=reader.take(16) if reader.flag() else None,
        kind=reader.number(">b"),
        durable=reader.flag(),
        expiration=reader.number(">q"),
        timestamp=reader.number(">q"),
        priority=reader.number(">b"),
        properties=reader.properties(),
    )


def queue(body: bytes) -> Values | None:
    """Return the columns of a queue."""
    reader = _Reader(body)
    try:
        found: Values = {"name": reader.text(), "address": reader.text()}
        found["filter"] = reader.text_or_none()
        found["metadata"] = reader.text_or_none()
        found["auto_created"] = reader.flag()
        # Records of older brokers end here.
        if reader.at < len(body):
            found["max_consumers"] = reader.number(">i")
            found["purge_on_no_consumers"] = reader.flag()
            found["routing_type"] = _ROUTING.get(reader.number(">b"))
    except LogFormatError:
        return None
    return found


def queue_address(body: bytes) -> str:
    """Return the address of a queue; empty where the bytes are something else."""
    reader = _Reader(body)
    try:
        reader.text()
        return reader.text()
    except LogFormatError:
        return ""


def address(body: bytes) -> Values | None:
    """Return the columns of an address."""
    reader = _Reader(body)
    try:
        name = reader.text()
        kinds = [_ROUTING.get(reader.number(">b"), "") for _ in range(reader.number(">i"))]
        return {"name": name, "routing_types": ", ".join(kinds), "auto_created": reader.flag()}
    except LogFormatError:
        return None


def queue_id(body: bytes) -> int | None:
    """Return the queue of a reference, or of its end."""
    return int.from_bytes(body[:8], signed=True) if len(body) >= 8 else None


def taken(body: bytes) -> tuple[int, int]:
    """Return the page that a record of `PAGE_TAKEN` names, and the message in it; 0 for neither."""
    return POSITION.unpack_from(body, 8) if len(body) >= 8 + POSITION.size else (0, 0)


class LargeFile(NamedTuple):
    """The file of a large message.

    Attributes:
        size: in bytes; None if the record says none, or that before it was packed.
        durable: whether a broker keeps it over a start.
    """

    size: int | None
    durable: bool


def large_file(body: bytes) -> LargeFile:
    """Return what the record of a large message says of its file."""
    try:
        headers = _headers(_Reader(body))
    except LogFormatError:
        return LargeFile(None, False)
    _, size = headers.properties.get(_LARGE_SIZE, (NULL, None))
    _, packed = headers.properties.get(_PACKED, (NULL, None))
    return LargeFile(size if isinstance(size, int) and not packed else None, headers.durable)


Notes = Sequence[tuple[int, bytes]]
"""Numbers and bodies of the records of `IDS_GIVEN`."""


def noted_starts(notes: Notes) -> list[int]:
    """Return the first id after each start of a broker that is noted, in their order.

    It is the number of a note up to which id the broker may go. When it stops, another one notes
    the last that it gave, its own.
    """
    return sorted(number for number, body in notes if int.from_bytes(body[:8]) > number)


def ids_given(notes: Notes) -> range | None:
    """Return the ids that a broker gave after its last start; None if no note tells."""
    starts = noted_starts(notes)
    return range(starts[-1], int.from_bytes(max(notes)[1][:8]) + 1) if starts else None


def counted(user_type: int, body: bytes) -> int:
    """Return how many messages a record of `COUNTERS` counts; 0 where it ends early."""
    end = 16 if user_type == PAGE_COUNT else 12
    return int.from_bytes(body[8:end], signed=True) if len(body) >= end else 0


def moment(milliseconds: int) -> str | None:
    """Return a time in UTC as Spark writes it; None for 0, and for what no calendar has."""
    if milliseconds <= 0:
        return None
    try:
        zero = datetime.datetime(1970, 1, 1)
        return str(zero + datetime.timedelta(milliseconds=milliseconds))
    except OverflowError:
        return None
