"""A journal of messages as the XML that a running Artemis imports (``artemis data imp``).

In: the rows of a journal, queues and addresses of the bindings beside it, the folder of large
messages. Out: bytes of XML, what they bring, and what they leave. Memory: all messages that wait.

The importer sends each message again. So it gives new ids, and what it is told of a queue are
address, filter and routing type. Source: XmlDataImporter and XMLMessageImporter of Artemis 2.40.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any, Final
from xml.sax.saxutils import quoteattr

from tallystick.errors import LogUnreadableError
from tallystick.records import Fate, Kind, Row, jsonable
from tallystick.systems.jboss.format import messages
from tallystick.systems.jboss.format.messages import CoreMessage
from tallystick.systems.surroundings import open_part

NOTE: Final = (
    "the import gives messages new ids and user ids; limits of queues and counts of deliveries "
    "are not in this form"
)
_BROUGHT: Final = (Fate.COMMITTED, Fate.LOST)
_IN_DOUBT: Final[Mapping[int | None, str]] = {
    messages.REFERENCE: "messages for a queue, in doubt",
    messages.ACKNOWLEDGED: "acknowledgements in doubt, whose messages are brought",
}
_TYPES: Final = {
    0: "bytes", 2: "boolean", 3: "byte", 4: "bytes", 5: "short", 6: "integer", 7: "long",
    8: "float", 9: "double", 10: "simple-string",
}  # fmt: skip
_NULL: Final = "_AMQ_NULL"
"""What the importer takes for no value."""
_NO_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PACKED: Final = b"\x1f\x8b"
"""What the importer unpacks, where a piece begins with it."""
_PIECE: Final = 3 << 16


class _CannotBringError(Exception):
    """Says why a message has no counterpart."""


@dataclass(slots=True)
class Waiting:
    """The messages of a journal that wait, as far as they can be believed.

    Attributes:
        records: user type and body by the id of the message, in the order of the journal.
        references: ids of queues by the id of the message.
        left: what is no message that waits, by reason.
    """

    records: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    references: dict[str, dict[int, None]] = field(default_factory=dict)
    left: Counter[str] = field(default_factory=Counter)

    def take(self, rows: Iterable[Row], prepared: Container[str | None]) -> None:
        """Take in the rows of the journal; ``prepared`` are transactions that wait."""
        paged = dict[str, int]()
        for row in rows:
            change = row.change
            kind: int | None = (change.values or {}).get("user_type")
            body, queue = change.after or b"", messages.queue_id(change.after or b"")
            if row.fate is Fate.IN_DOUBT or change.transaction in prepared:
                if (what := _IN_DOUBT.get(kind)) is not None:
                    self.left[what] += 1
            elif row.fate not in _BROUGHT:
                continue
            elif change.kind is Kind.DELETE:
                self.records.pop(change.key, None)
                self.references.pop(change.key, None)
                paged.pop(change.key, None)
            elif kind is None:
                continue
            elif kind in messages.MESSAGES and change.kind is Kind.ADD:
                self.records[change.key] = kind, body
            elif kind == messages.REFERENCE and queue is not None:
                self.references.setdefault(change.key, {})[queue] = None
            elif kind == messages.ACKNOWLEDGED and queue is not None:
                self.references.get(change.key, {}).pop(queue, None)
            elif kind in messages.COUNTERS:
                paged[change.key] = messages.counted(kind, body)
        if (count := sum(paged.values())) > 0:
            self.left["messages for a queue, in pages"] += count


def write_import(
    out: IO[bytes],
    waiting: Waiting,
    queues: Mapping[str, Mapping[str, Any]],
    addresses: Iterable[Mapping[str, Any]],
    large_folder: str,
) -> tuple[Counter[str], Counter[str]]:
    """Write the XML; return what it brings, messages by queue, and what is left, by reason."""
    brought, left = Counter[str](), Counter(waiting.left)
    named: dict[int, str] = {}

    def lines(*texts: str) -> None:
        out.writelines(text.encode() + b"\n" for text in texts)

    lines('<?xml version="1.0" encoding="UTF-8"?>', "<activemq-journal>", "<bindings>")
    for one in addresses:
        kinds = str(one["routing_types"]).replace(" ", "").upper()
        with suppress(_CannotBringError):  # a queue there tells
            lines(_element("address-binding", {"name": one["name"], "routing-types": kinds}))
    for number, one in queues.items():
        routing = str(one.get("routing_type") or "multicast").upper()
        given = {
            "name": one["name"], "address": one["address"], "filter-string": one["filter"] or "",
            "id": number, "routing-type": routing,
        }  # fmt: skip
        try:
            lines(_element("queue-binding", given))
        except _CannotBringError:
            left["queues named with characters that XML does not have"] += 1
        else:
            named[int(number)] = str(one["name"])
            brought[f"messages for {one['name']}"] = 0
    lines("</bindings>", "<messages>")
    for key, (kind, body) in waiting.records.items():
        wanted = waiting.references.get(key, {})
        names = [named[one] for one in wanted if one in named]
        if gone := len(wanted) - len(names):
            left["messages for a queue that the bindings beside do not have"] += gone
        if not names:
            continue
        try:
            found = messages.core_message(kind, body, "surrogatepass")
            if found is None:
                raise _CannotBringError("in another protocol or damaged")
            head, dropped = _head(found, names)
            with _content(f"{large_folder}/{key}.msg", found) as content:
                lines(*head, *_body(content, large=found.body is None), "</message>")
        except _CannotBringError as error:
            left[f"messages for a queue, {error}"] += len(names)
        else:
            brought.update(f"messages for {one}" for one in names)
            left["properties of one character"] += dropped
    lines("</messages>", "</activemq-journal>")
    return brought, +left


def _head(found: CoreMessage, names: Iterable[str]) -> tuple[list[str], int]:
    """Return the lines before the body, and how many properties have no type there."""
    given: dict[str, object] = {
        "id": found.message_id, "priority": found.priority, "expiration": found.expiration,
        "timestamp": found.timestamp, "type": messages.BODY_KINDS.get(found.kind, "default"),
    }  # fmt: skip
    if found.user_id is not None:
        given["user-id"] = found.user_id.hex()
    dropped = [name for name, (kind, _) in found.properties.items() if kind == messages.CHAR]
    properties = [
        _element("property", {"name": name, "value": _text(kind, value), "type": _TYPES[kind]})
        for name, (kind, value) in found.properties.items()
        if name not in dropped
    ]
    queues = [_element("queue", {"name": one}) for one in names]
    head = _element("message", given).replace("/>", ">")
    return [head, "<properties>", *properties, "</properties>", "<queues>", *queues,
            "</queues>"], len(dropped)  # fmt: skip


def _element(name: str, given: Mapping[str, object]) -> str:
    """Return an empty element. Raises `_CannotBringError` for a character that XML has not."""
    parts = [f"{key}={quoteattr(str(value))}" for key, value in given.items()]
    if _NO_XML.search("".join(parts)):
        raise _CannotBringError("with characters that XML does not have")
    return f"<{name} {' '.join(parts)}/>"


def _text(kind: int, value: object) -> str:
    """Return a value as the importer parses it."""
    if value is None:
        return _NULL
    if kind == messages.BYTES:
        data = bytes.fromhex(str(value))
        if data.startswith(_PACKED):
            raise _CannotBringError("with a property that the importer would unpack")
        return base64.urlsafe_b64encode(data).decode()
    if value == _NULL:
        raise _CannotBringError(f"with the text {_NULL}, which the importer takes for no value")
    if isinstance(value, bool):
        return str(value).lower()
    return str(jsonable(value))


@contextmanager
def _content(path: str, found: CoreMessage) -> Iterator[bytes | memoryview]:
    """Give the bytes of a body, which lie in a file where the message is large."""
    if found.body is not None:
        yield found.body
        return
    try:
        source = open_part(path)
    except LogUnreadableError:
        source = None
    if source is None:
        raise _CannotBringError("whose file of a large body is missing")
    with source:
        yield source.data


def _body(content: bytes | memoryview, *, large: bool) -> Iterator[str]:
    """Yield the lines of a body: the importer decodes a piece at the white space behind it."""
    yield '<body isLarge="true">' if large else "<body>"
    at = 0
    while at < len(content):
        size = 1 if bytes(content[at : at + 2]) == _PACKED else _PIECE
        yield f"<![CDATA[{base64.urlsafe_b64encode(content[at : at + size]).decode()}]]>"
        at += size
    yield "</body>"
