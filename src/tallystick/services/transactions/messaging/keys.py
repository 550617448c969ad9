"""Idempotency keys: a request that comes again is answered with the first outcome.

In: the key of a request. Out: a row of the table ``tallystick_keys`` in a database of the
application, with the outcome, written in the global transaction of the request's work. So the row
is there if and only if the work was committed.

A second request with the key inserts the same row: the database lets it wait for the first one,
and then either finds the row or inserts it. A first transaction that is in doubt holds its row
until recovery has settled it; meanwhile the second request ends with `BusyError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from tallystick.arguments import seconds, text
from tallystick.callables import require_plain_calls, require_value
from tallystick.errors import BusyError, TransactionUsageError
from tallystick.services.driver_errors import is_lock_timeout
from tallystick.services.transactions.messaging.statements import (
    MYSQL,
    POSTGRES,
    SQLITE,
    Answer,
    Ask,
    Manager,
    Table,
    ThreadAsk,
    dialect_of,
    for_threads,
    named,
    resource_of,
)
from tallystick.services.transactions.resource import Resource
from tallystick.services.transactions.resources.sqlite import LOCK_WAIT_MAX, lock_wait
from tallystick.services.transactions.steps import Steps
from tallystick.values import decode_value, encode_value

KEY_MAX = 255
"""Characters of a key, and of a scope."""
_BATCH = 1000
_PAYLOAD = "tallystick-payload:"
"""Begins the first line of what is kept of a request; then follows the outcome."""

KEYS = Table(
    "tallystick_keys",
    {
        POSTGRES: (
            (
                "CREATE TABLE IF NOT EXISTS {table} "
                "(scope text, request text, outcome text NOT NULL, "
                "created timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (scope, request))"
            ),
            "CREATE INDEX IF NOT EXISTS tallystick_keys_created ON {table} (created)",
        ),
        # Bytes: text is compared there without regard to spaces at its end.
        MYSQL: (
            (
                "CREATE TABLE IF NOT EXISTS {table} "
                "(scope VARBINARY(1020), request VARBINARY(1020), "
                "outcome LONGTEXT NOT NULL, created TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, "
                "PRIMARY KEY (scope, request), KEY (created)) ENGINE=InnoDB CHARACTER SET utf8mb4"
            ),
        ),
        SQLITE: (
            (
                "CREATE TABLE IF NOT EXISTS {table} "
                "(scope TEXT, request TEXT, outcome TEXT NOT NULL, "
                "created INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER)), "
                "PRIMARY KEY (scope, request)) WITHOUT ROWID"
            ),
        ),
    },
)

_INSERT = {
    POSTGRES: "INSERT INTO {} (scope, request, outcome) VALUES (%s, %s, '') ON CONFLICT DO NOTHING",
    MYSQL: "INSERT IGNORE INTO {} (scope, request, outcome) VALUES (%s, %s, '')",
    SQLITE: "INSERT OR IGNORE INTO {} (scope, request, outcome) VALUES (?, ?, '')",
}
# The row as it is committed now, not as a snapshot of the transaction shows it.
_SELECT = {
    POSTGRES: "SELECT outcome FROM {} WHERE scope = %s AND request = %s",
    MYSQL: "SELECT outcome FROM {} WHERE scope = %s AND request = %s LOCK IN SHARE MODE",
    SQLITE: "SELECT outcome FROM {} WHERE scope = ? AND request = ?",
}
_FORGET = {
    POSTGRES: "DELETE FROM {0} WHERE (scope, request) IN (SELECT scope, request FROM {0} "
    "WHERE created < now() - make_interval(secs => %s) LIMIT %s)",
    MYSQL: "DELETE FROM {0} WHERE created < FROM_UNIXTIME(UNIX_TIMESTAMP() - %s) LIMIT %s",
    SQLITE: "DELETE FROM {0} WHERE (scope, request) IN (SELECT scope, request FROM {0} "
    "WHERE created < CAST(strftime('%s', 'now') AS INTEGER) - ? LIMIT ?)",
}


def _to_json(outcome: Any) -> str:
    text = encode_value(outcome)
    if decode_value(text) != outcome:
        raise TypeError("it changes on the way through JSON")
    return text


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Where the keys of a handler's requests are kept, and what they are.

    Args:
        resource: the name of the database that keeps them; best one that takes part anyway.
        of: the parameter of the handler that holds the key, or a function that gets the handler's
            arguments and returns it: text of 1 to 255 characters, unique among the requests of
            the scope.
        scope: tells the keys of handlers apart; by default the name of the function. A function
            that is renamed keeps its keys if it states the old name.
        wait: seconds to wait for a request with the same key that is under way; at most 24 days.
        encode: makes text of the handler's result; by default JSON as `tallystick.values` has it,
            which must give it back.
        decode: makes the result of that text.
        payload: gets the handler's arguments and returns what tells the request from others with
            the same key; by default all arguments but the key that have an encoding as JSON. A
            fingerprint of it is kept.
    """

    resource: str
    of: str | Callable[..., str]
    scope: str | None = None
    wait: float = 10.0
    encode: Callable[[Any], str] = _to_json
    decode: Callable[[str], Any] = decode_value
    payload: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        text(self.resource, "resource")
        if self.scope is not None:
            text(self.scope, "scope")
        object.__setattr__(self, "wait", min(seconds(self.wait, "wait"), LOCK_WAIT_MAX))
        functions = {"encode": self.encode, "decode": self.decode}
        functions |= {} if isinstance(self.of, str) else {"of": self.of}
        functions |= {} if self.payload is None else {"payload": self.payload}
        for name, one in functions.items():
            if not callable(one):
                raise TypeError(f"{name} is of type {type(one).__name__}; expected a function")
        require_plain_calls(self, ("of", "encode", "decode", "payload"), "a key")


class KeyedHandler:
    """The keys of one handler: claims them and keeps its outcomes.

    Raises:
        TransactionUsageError: the database is no resource of the manager, or the handler has no
            parameter of that name.
    """

    def __init__(
        self,
        key: IdempotencyKey,
        function: Callable[..., Any],
        resources: Mapping[str, Resource],
    ) -> None:
        self.key = key
        self.scope = key.scope or f"{function.__module__}.{function.__qualname__}"
        self._resource = named(resources, key.resource)
        self._dialect = dialect_of(self._resource)
        self._signature = inspect.signature(function)
        _require_length(self.scope, "the scope")
        if isinstance(key.of, str) and key.of not in self._signature.parameters:
            raise TransactionUsageError(
                f"{function.__name__!r} has no parameter {key.of!r}, which is to hold the key"
            )

    def request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Claim:
        """Return the claim of one request, by its arguments."""
        of = self.key.of
        if isinstance(of, str):
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            request = bound.arguments[of]
        else:
            request = require_value(of(*args, **kwargs), "of of a key")
        mark = self._fingerprint(args, kwargs)
        return Claim(self.key, self._dialect, self._resource, self.scope, _checked(request), mark)

    def _fingerprint(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the mark of a request's payload, which stands before its outcome."""
        if self.key.payload is not None:
            payload = require_value(self.key.payload(*args, **kwargs), "payload of a key")
            text = encode_value(payload)
        else:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            bound.arguments.pop(self.key.of if isinstance(self.key.of, str) else "", None)
            found = {name: _text_of(value) for name, value in bound.arguments.items()}
            text = encode_value({name: one for name, one in found.items() if one is not None})
        return f"{_PAYLOAD}{sha256(text.encode()).hexdigest()}\n"


class Claim:
    """One request: its row in the table of keys. A thread or a task runs its steps.

    Args:
        key: how long to wait, and how outcomes are written.
        dialect: of the database.
        resource: the database.
        scope: of the handler.
        request: the key.
        mark: of the payload.
    """

    def __init__(
        self,
        key: IdempotencyKey,
        dialect: str,
        resource: Resource,
        scope: str,
        request: str,
        mark: str,
    ) -> None:
        self._mark = mark
        self.name = key.resource
        self.request = request
        self._key = key
        self._dialect = dialect
        self._resource = resource
        row = (scope, request)
        self._row = tuple(part.encode() for part in row) if dialect == MYSQL else row

    def take(self, ask: Ask) -> Steps[str | None]:
        """Claim the key: return None if it is new, else the text of the first outcome.

        Raises:
            BusyError: a request with the same key is still under way, or in doubt.
            TransactionUsageError: the first call has kept no outcome, or had another payload.
        """
        self._table = yield lambda: ask.table(KEYS, self._resource)
        try:
            with lock_wait(max(self._key.wait, 0.0)):  # a branch of SQLite waits when it begins
                yield from self._limit_wait(ask)
            answer: Answer = yield lambda: ask(self._text(_INSERT), *self._row)
            yield from self._restore_wait(ask)
            if answer.changed == 1:
                return None
            found: Answer = yield lambda: ask(self._text(_SELECT), *self._row)
        except Exception as error:
            if is_lock_timeout(error):
                raise self._busy() from error
            raise
        if not found.rows:
            raise self._busy()
        kept = str(found.rows[0][0])
        if not kept:
            raise TransactionUsageError(
                f"the first request with the key {self.request!r} kept no outcome",
                advice="A handler with a key leaves the end of its transaction to the manager",
            )
        return self._of_this_payload(kept)

    def _of_this_payload(self, kept: str) -> str:
        """Return the outcome in what was kept, without the mark of its payload.

        Earlier versions kept no mark: their outcomes are taken for those of this request.
        """
        if not kept.startswith(_PAYLOAD):
            return kept
        if not kept.startswith(self._mark):
            raise TransactionUsageError(
                f"the key {self.request!r} belongs to a request with another payload",
                advice="Give each request a key of its own; if arguments differ that are no part "
                "of the request, tell the others with IdempotencyKey(payload=...)",
            )
        return kept[len(self._mark) :]

    def keep(self, ask: Ask, outcome: Any) -> Steps[None]:
        """Keep the outcome of the request.

        Raises:
            TransactionUsageError: it cannot be written as text.
        """
        try:
            text = require_value(self._key.encode(outcome), "encode of a key")
        except (TypeError, ValueError, TransactionUsageError) as error:
            raise TransactionUsageError(
                f"the outcome of the request {self.request!r} cannot be kept: {error}",
                expected="a value that JSON gives back unchanged",
                advice="Return such a value, or give the key its own encode= and decode=",
            ) from error
        mark = "?" if self._dialect == SQLITE else "%s"
        statement = (
            f"UPDATE {self._table} SET outcome = {mark} WHERE scope = {mark} AND request = {mark}"
        )
        yield lambda: ask(statement, self._mark + text, *self._row)

    def _limit_wait(self, ask: Ask) -> Steps[None]:
        """Limit how long a statement waits for locks, and remember the limit of before."""
        seconds = max(self._key.wait, 0.0)
        if self._dialect == POSTGRES:
            query = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)"
            answer = yield lambda: ask(query, str(int(seconds * 1000) or 1))
            self._before = answer.rows[0][0]
        elif self._dialect == MYSQL:
            statement = (
                "SET @tallystick_wait = @@innodb_lock_wait_timeout, "
                "SESSION innodb_lock_wait_timeout = %s"
            )
            yield lambda: ask(statement, int(seconds) or 1)
        else:
            answer = yield lambda: ask("PRAGMA busy_timeout")
            self._before = answer.rows[0][0]
            yield lambda: ask(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def _restore_wait(self, ask: Ask) -> Steps[None]:
        if self._dialect == POSTGRES:
            yield lambda: ask("SELECT set_config('lock_timeout', %s, true)", self._before)
        elif self._dialect == MYSQL:
            yield lambda: ask("SET SESSION innodb_lock_wait_timeout = @tallystick_wait")
        else:
            yield lambda: ask(f"PRAGMA busy_timeout = {self._before}")

    def _text(self, statements: Mapping[str, str]) -> str:
        return statements[self._dialect].format(self._table)

    def _busy(self) -> BusyError:
        return BusyError(
            f"a request with the key {self.request!r} is under way, or in doubt",
            advice="Send it again later: it is then answered with the outcome of the first",
        )


def forget_keys(manager: Manager, resource: str, older_than: float) -> int:
    """Delete the keys of a database that are older than some time, by the database's clock.

    A request that comes again after its key is gone is carried out again: keep keys for longer
    than any client or queue repeats a request.

    Args:
        manager: a `TransactionManager` or an `AsyncTransactionManager`.
        resource: the name of the database.
        older_than: seconds.

    Returns:
        How many were deleted, 1,000 per transaction.
    """
    older_than = seconds(older_than, "older_than")
    found = resource_of(manager, resource)
    manager = for_threads(manager)
    statement = _FORGET[dialect_of(found)].format(KEYS.of(found))
    total, count = 0, _BATCH
    while count == _BATCH:
        with manager.begin(independent=True) as transaction:
            count = ThreadAsk(transaction, resource)(statement, older_than, _BATCH).changed
        total += count
    return total


def _text_of(value: Any) -> str | None:
    """Return a value as JSON; None for none, and for one without an encoding, such as a session."""
    try:
        return None if value is None else encode_value(value)
    except TransactionUsageError:
        return None


def _checked(request: Any) -> str:
    if not isinstance(request, str):
        raise TransactionUsageError(f"a key of type {type(request).__name__}", expected="a str")
    checked = text(request, "a key")
    _require_length(checked, "a key")
    return checked


def _require_length(name: str, what: str) -> None:
    if not 0 < len(name) <= KEY_MAX or "\0" in name:
        raise TransactionUsageError(
            f"{what} of {len(name)} characters",
            expected=f"1 to {KEY_MAX} characters, none of them NUL",
        )
