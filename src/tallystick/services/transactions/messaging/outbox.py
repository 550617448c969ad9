"""The outbox: a message is a row beside the rows that it tells of, until it was delivered.

In: messages of the application, in a branch of its transaction. Out: rows of the table
``tallystick_outbox``, one per message and consumer, which a `relay.Relay` delivers and deletes.

A delivered row is deleted rather than passed over by a position that only grows: offsets are
given when rows are written, and a transaction may commit after another one with higher offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tallystick.arguments import bytes_of, several, text
from tallystick.errors import TransactionUsageError
from tallystick.printable import counted, printable
from tallystick.services.transactions.messaging.statements import (
    MYSQL,
    POSTGRES,
    SQLITE,
    Ask,
    Manager,
    SyncTransaction,
    Table,
    TaskAsk,
    TaskTransaction,
    ThreadAsk,
    dialect_of,
    for_threads,
    resource_of,
)
from tallystick.services.transactions.resource import Resource
from tallystick.services.transactions.steps import Steps, drive, follow
from tallystick.storage.fork import Uncopied

NAME_MAX = 255
"""Characters of the name of a consumer, and of a topic."""

MESSAGES = Table(
    "tallystick_outbox",
    {
        POSTGRES: (
            (
                "CREATE TABLE IF NOT EXISTS {table} (id bigserial PRIMARY KEY, "
                "consumer text NOT NULL, topic text NOT NULL, headers text NOT NULL, "
                "body bytea NOT NULL, created timestamptz NOT NULL DEFAULT now(), "
                "attempts integer NOT NULL DEFAULT 0, error text, "
                "parked boolean NOT NULL DEFAULT false)"
            ),
            ("CREATE INDEX IF NOT EXISTS tallystick_outbox_due ON {table} (consumer, parked, id)"),
        ),
        MYSQL: (
            (
                "CREATE TABLE IF NOT EXISTS {table} (id BIGINT AUTO_INCREMENT PRIMARY KEY, "
                "consumer VARCHAR(255) NOT NULL, topic VARCHAR(255) NOT NULL, "
                "headers LONGTEXT NOT NULL, body LONGBLOB NOT NULL, "
                "created TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, "
                "attempts INTEGER NOT NULL DEFAULT 0, error TEXT, "
                "parked BOOLEAN NOT NULL DEFAULT false, KEY (consumer, parked, id)) "
                "ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            ),
        ),
        SQLITE: (
            (
                "CREATE TABLE IF NOT EXISTS {table} (id INTEGER PRIMARY KEY AUTOINCREMENT, "
                "consumer TEXT NOT NULL, topic TEXT NOT NULL, headers TEXT NOT NULL, "
                "body BLOB NOT NULL, "
                "created INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER)), "
                "attempts INTEGER NOT NULL DEFAULT 0, error TEXT, "
                "parked BOOLEAN NOT NULL DEFAULT false)"
            ),
        ),
    },
)


_AGE = {
    POSTGRES: "extract(epoch FROM clock_timestamp() - min(created))",
    MYSQL: "UNIX_TIMESTAMP() - UNIX_TIMESTAMP(min(created))",
    SQLITE: "CAST(strftime('%s', 'now') AS INTEGER) - min(created)",
}


@dataclass(frozen=True, slots=True)
class Pending:
    """What waits for a consumer: messages, given-up ones among them, seconds of the oldest."""

    messages: int
    parked: int
    oldest_seconds: float

    def __str__(self) -> str:
        age = f"; the oldest for {self.oldest_seconds:.1f} s" if self.messages else ""
        waiting = counted(self.messages, "message waits", "messages wait")
        return f"{waiting}, {self.parked:,} of them parked{age}"


@dataclass(frozen=True, slots=True)
class Message:
    """A message that is due.

    Attributes:
        offset: its number in the outbox: the same at each delivery, never given twice, so a
            consumer can tell by it whether it has the message. Numbers may be missing, and a
            message with a lower one may come later. A database that was restored from a backup
            gives numbers again, unless its counter is set.
        topic: what it is about; the name of a queue, for example.
        body: its bytes.
        headers: text by name.
        attempts: how many deliveries have failed.
    """

    offset: int
    topic: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 0

    def __str__(self) -> str:
        tried = f", {self.attempts:,} deliveries failed" if self.attempts else ""
        return printable(
            f"message {self.offset} about {self.topic}, {len(self.body):,} bytes{tried}"
        )


class Outbox(Uncopied):
    """The outbox in one database, whose table is made if it is not there.

    Args:
        manager: a `TransactionManager` or an `AsyncTransactionManager`.
        resource: the name of the database among its resources.
        consumers: who gets each message; each has a `Relay` of its own.

    Raises:
        ResourceUnreachable: the database is away.
        TransactionUsageError: it cannot keep the table.
    """

    def __init__(
        self, manager: Manager, resource: str, consumers: Sequence[str] = ("default",)
    ) -> None:
        self.manager = for_threads(manager)
        self.consumers = tuple(dict.fromkeys(several(consumers, "consumers")))
        if not self.consumers:
            raise TransactionUsageError("an outbox without a consumer keeps no message")
        for name in self.consumers:
            require_name(name, "a consumer")
        self.resource = text(resource, "resource")
        self.database = resource_of(manager, self.resource)
        self.table = MESSAGES.of(self.database)
        self.mark = mark_of(self.database)
        names = "consumer, topic, headers, body"
        values = ", ".join([self.mark] * 4)
        self._insert = f"INSERT INTO {self.table} ({names}) VALUES ({values})"

    def __repr__(self) -> str:
        return f"Outbox({self.resource!r}, consumers={list(self.consumers)})"

    def add(
        self,
        transaction: SyncTransaction,
        topic: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Add a message to a transaction: it is delivered if that commits, and only then.

        Args:
            transaction: a `Transaction`.
            topic: 1 to 255 characters.
            body: any bytes.
            headers: text by name.

        Raises:
            TransactionUsageError: the transaction, the topic or the body is none, or a header is no
                text.
        """
        drive(self._add(ThreadAsk(transaction, self.resource), topic, body, headers))

    async def add_awaiting(
        self,
        transaction: TaskTransaction,
        topic: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Add a message to an `AsyncTransaction`; see `add`."""
        await follow(self._add(TaskAsk(transaction, self.resource), topic, body, headers))

    def _add(
        self, ask: Ask, topic: str, body: bytes, headers: Mapping[str, str] | None
    ) -> Steps[None]:
        require_name(topic, "a topic")
        try:
            stored = bytes_of(body)
        except TypeError:
            raise TransactionUsageError(
                f"a message whose body is of type {type(body).__name__}",
                expected="bytes, or another buffer",
                advice="Encode text: 'text'.encode(); the headers may say how",
            ) from None
        written = _headers(headers)
        for consumer in self.consumers:
            yield partial(ask, self._insert, consumer, topic, written, stored)

    def pending(self, consumer: str = "default") -> Pending:
        """Return what a consumer has not got yet."""
        require_name(consumer, "a consumer")
        age = _AGE[dialect_of(self.database)]
        query = (
            f"SELECT count(*), sum(CASE WHEN parked THEN 1 ELSE 0 END), {age} "
            f"FROM {self.table} WHERE consumer = {self.mark}"
        )
        with self.manager.begin(independent=True) as transaction:
            ((count, parked, oldest),) = ThreadAsk(transaction, self.resource)(query, consumer).rows
        return Pending(int(count), int(parked or 0), max(float(oldest or 0), 0.0))

    def unpark(self, consumer: str = "default") -> int:
        """Make the messages that were given up due again; return how many."""
        require_name(consumer, "a consumer")
        statement = (
            f"UPDATE {self.table} SET parked = false, attempts = 0 "
            f"WHERE consumer = {self.mark} AND parked"
        )
        with self.manager.begin(independent=True) as transaction:
            return ThreadAsk(transaction, self.resource)(statement, consumer).changed


def _headers(headers: Mapping[str, str] | None) -> str:
    """Return headers as JSON. Raises `TransactionUsageError` for what is no text."""
    if headers is not None and not isinstance(headers, Mapping):
        raise TransactionUsageError(
            f"headers of type {type(headers).__name__}", expected="text by name, or None"
        )
    given: dict[Any, Any] = dict(headers or {})
    for name, value in given.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise TransactionUsageError(
                f"the header {name!r} is {type(value).__name__}",
                expected="text by name",
                advice="Write it as text; the body may hold any bytes",
            )
    return json.dumps(given)


def mark_of(resource: Resource) -> str:
    """Return how statements for a database mark a parameter."""
    return "?" if dialect_of(resource) == SQLITE else "%s"


def require_name(name: str, what: str) -> None:
    """Raise `TransactionUsageError` for a name that a table could not hold."""
    name = text(name, what)
    if not 0 < len(name) <= NAME_MAX or "\0" in name:
        raise TransactionUsageError(
            f"{what} with a name of {len(name)} characters",
            expected=f"1 to {NAME_MAX} characters, none of them NUL",
        )
