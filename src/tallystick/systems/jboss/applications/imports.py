"""A journal of messages as the XML that a running Artemis imports (``artemis data imp``).

In: the rows of a journal, queues and addresses of the bindings beside it, the messages in pages,
the folder of large ones. Out: bytes of XML, counts of what they bring and of what they leave out.
Memory: all messages of the journal that wait, and what is known of those in pages.

The importer sends each message again. So messages get new ids, and of a queue only address, filter
and routing type come over. Source: XmlDataImporter and XMLMessageImporter of Artemis 2.40.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any, Final
from xml.sax.saxutils import quoteattr

from tallystick.errors import LogUnreadableError
from tallystick.records import Fate, Kind, Row, jsonable
from tallystick.systems.jboss.format import messages
from tallystick.systems.jboss.format.messages import CoreMessage
from tallystick.systems.jboss.format.pages import PagedMessage
from tallystick.systems.surroundings import open_part

NOTE: Final = (
    "the import gives messages new ids and user ids; limits of queues and counts of deliveries "
    "are not in this form"
)
_BROUGHT: Final = (Fate.COMMITTED, Fate.LOST)
_DOUBTED, _NOT_TAKEN = (
    "messages for a queue, in doubt",
    "acknowledgements in doubt, whose messages are brought",
)
_IN_DOUBT: Final[Mapping[int | None, str]] = {
    messages.REFERENCE: _DOUBTED,
    messages.ACKNOWLEDGED: _NOT_TAKEN,
    messages.MESSAGE_TAKEN: _NOT_TAKEN,
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
        paged: what a record counts of messages in pages, by its id.
        taken: queue, page and message in it of what a queue has taken, by the id of the record; of
            a whole page without the message.
        sent: a transaction with messages in pages, by the id of its record.
        doubted: transactions of ``sent`` that are in doubt.
    """

    records: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    references: dict[str, dict[int, None]] = field(default_factory=dict)
    left: Counter[str] = field(default_factory=Counter)
    paged: dict[str, int] = field(default_factory=dict)
    taken: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    doubted: set[int] = field(default_factory=set)

    def take(self, rows: Iterable[Row], prepared: Container[str | None]) -> None:
        """Take in the rows of the journal; ``prepared`` are transactions that wait."""
        for row in rows:
            change = row.change
            kind: int | None = (change.values or {}).get("user_type")
            body, queue = change.after or b"", messages.queue_id(change.after or b"")
            if row.fate is Fate.IN_DOUBT or change.transaction in prepared:
                if (what := _IN_DOUBT.get(kind)) is not None:
                    self.left[what] += 1
                elif kind == messages.PAGE_TRANSACTION and queue is not None:
                    self.doubted.add(queue)
            elif row.fate not in _BROUGHT:
                continue
            elif change.kind is Kind.DELETE:
                for known in (self.records, self.references, self.paged, self.taken, self.sent):
                    known.pop(change.key, None)
            elif kind in messages.MESSAGES and change.kind is Kind.ADD:
                self.records[change.key] = kind, body
            elif kind is not None and queue is not None:
                self._take(change.key, kind, queue, body)

    def _take(self, key: str, kind: int, queue: int, body: bytes) -> None:
        """Take in a record that is about a queue, or a transaction with messages in pages."""
        if kind == messages.REFERENCE:
            self.references.setdefault(key, {})[queue] = None
        elif kind == messages.ACKNOWLEDGED:
            self.references.get(key, {}).pop(queue, None)
        elif kind in messages.COUNTERS:
            self.paged[key] = messages.counted(kind, body)
        elif kind == messages.MESSAGE_TAKEN:
            self.taken[key] = queue, *messages.taken(body)
        elif kind == messages.ALL_TAKEN:
            self.taken[key] = queue, messages.taken(body)[0]
        elif kind == messages.PAGE_TRANSACTION:
            self.sent[key] = queue

    def in_pages(
        self, pages: Iterable[tuple[int, PagedMessage]]
    ) -> Iterator[tuple[PagedMessage, list[int]]]:
        """Yield the messages in pages that queues have still to take, each with these.

        Args:
            pages: the number of its page, and each message.
        """
        taken, sent, found = set(self.taken.values()), set(self.sent.values()), 0
        for page, one in pages:
            wanted = [
                queue for queue in one.queues
                if taken.isdisjoint(((queue, page), (queue, page, one.place)))
            ]  # fmt: skip
            if one.transaction in self.doubted:
                self.left[_DOUBTED] += len(wanted)
            elif one.user_type is None:
                self.left["messages in pages, in another protocol or damaged"] += 1
            elif one.transaction <= 0 or one.transaction in sent:
                found += len(wanted)
                yield one, wanted
        if (gone := sum(self.paged.values()) - found) > 0:
            self.left["messages for a queue, in pages that are not there or not read"] += gone


@dataclass(slots=True)
class _Writer:
    """Writes the XML, and counts what it brings and leaves."""

    out: IO[bytes]
    large_folder: str
    left: Counter[str]
    brought: Counter[str] = field(default_factory=Counter)
    named: dict[int, str] = field(default_factory=dict)

    def lines(self, *texts: str) -> None:
        self.out.writelines(text.encode() + b"\n" for text in texts)

    def address(self, one: Mapping[str, Any]) -> None:
        kinds = str(one["routing_types"]).replace(" ", "").upper()
        with suppress(_CannotBringError):  # a queue there tells
            given = {"name": one["name"], "routing-types": kinds}
            self.lines(_element("address-binding", given))

    def queue(self, number: str, one: Mapping[str, Any]) -> None:
        routing = str(one.get("routing_type") or "multicast").upper()
        given = {
            "name": one["name"], "address": one["address"], "filter-string": one["filter"] or "",
            "id": number, "routing-type": routing,
        }  # fmt: skip
        try:
            self.lines(_element("queue-binding", given))
        except _CannotBringError:
            self.left["queues named with characters that XML does not have"] += 1
        else:
            self.named[int(number)] = str(one["name"])
            self.brought[f"messages for {one['name']}"] = 0

    def message(self, key: object, kind: int, body: bytes, wanted: Collection[int]) -> None:
        """Write a message for the queues that want it, if the bindings have any of these."""
        names = [self.named[one] for one in wanted if one in self.named]
        if gone := len(wanted) - len(names):
            self.left["messages for a queue that the bindings beside do not have"] += gone
        if not names:
            return
        try:
            found = messages.core_message(kind, body, "surrogatepass")
            if found is None:
                raise _CannotBringError("in another protocol or damaged")
            head, dropped = _head(found, names)
            with _content(f"{self.large_folder}/{key}.msg", found) as content:
                self.lines(*head, *_body(content, large=found.body is None), "</message>")
        except _CannotBringError as error:
            self.left[f"messages for a queue, {error}"] += len(names)
        else:
            self.brought.update(f"messages for {one}" for one in names)
            self.left["properties of one character"] += dropped


def write_import(
    out: IO[bytes],
    waiting: Waiting,
    queues: Mapping[str, Mapping[str, Any]],
    addresses: Iterable[Mapping[str, Any]],
    large_folder: str,
    pages: Iterable[tuple[int, PagedMessage]] = (),
) -> tuple[Counter[str], Counter[str]]:
    """Write the XML; return what it brings, messages by queue, and what is left, by reason."""
    written = _Writer(out, large_folder, waiting.left)
    written.lines('<?xml version="1.0" encoding="UTF-8"?>', "<activemq-journal>", "<bindings>")
    for address in addresses:
        written.address(address)
    for number, queue in queues.items():
        written.queue(number, queue)
    written.lines("</bindings>", "<messages>")
    for key, (kind, body) in waiting.records.items():
        written.message(key, kind, body, waiting.references.get(key, {}))
    for paged, wanted in waiting.in_pages(pages):
        written.message(paged.message_id, paged.user_type or 0, paged.record, wanted)
    written.lines("</messages>", "</activemq-journal>")
    return written.brought, +written.left


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
    """Yield the lines of a body: the importer decodes a piece at the white space after it."""
    yield '<body isLarge="true">' if large else "<body>"
    at = 0
    while at < len(content):
        size = 1 if bytes(content[at : at + 2]) == _PACKED else _PIECE
        yield f"<![CDATA[{base64.urlsafe_b64encode(content[at : at + size]).decode()}]]>"
        at += size
    yield "</body>"
