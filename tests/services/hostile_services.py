"""Page store, write-behind service, outbox and keys, called with one odd argument each.

See `tests.services.hostile_calls`, whose `Subject` these are.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tallystick.roles import Operation, OperationCode, PersistEntry
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import (
    IdempotencyKey,
    Outbox,
    TransactionManager,
    forget_keys,
    from_journal,
)
from tallystick.services.write_behind import TargetDownError, WriteBehind
from tallystick.values import encode_value
from tests.hostile import bytes_in, integer_in
from tests.services.hostile_calls import Call, Given, Make, Row, Subject, named, new_path

_LONG = (-(1 << 63), (1 << 63) - 1)


def text_in(value: Any) -> str | None:
    """The text that a value is; None for anything else."""
    return str.__str__(value) if isinstance(value, str) else None


# -- page store ---------------------------------------------------------------------------------


class PageStoreSubject(Subject):
    """A page store of one table, to which others are added."""

    ordered = False

    def open(self) -> None:
        self.store = PageStore(self.folder)
        if not self.due:
            self.store.create_table("rows")
            self.due.append(("table", "rows"))

    def close(self) -> None:
        self.store.close()

    def write_another(self, body: bytes) -> Row:
        key = self.new_id()
        with self.store.begin() as tx:
            tx.table("rows")[key] = body
        return (key, body)

    def live(self) -> int:
        row = self.write_another(b"live")
        self.due.append(row)
        assert isinstance(row[0], int)
        return row[0]

    def prepared(self) -> str:
        """The name of a transaction that was just prepared."""
        name = f"prepared {self.new_id()}"
        self.store.begin().prepare(name)
        return name

    def rows(self) -> list[Row]:
        tables: list[Row] = [("table", name) for name in self.store.tables()]
        with self.store.begin(read_only=True) as tx:
            return [*tables, *tx.table("rows").items()]


def _in_table(call: Callable[[Any, Given], object]) -> Make:
    """Call something of a table in a transaction; the row is that of its key, where it has one."""

    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
        with subject.store.begin() as tx:
            call(tx.table("rows"), given)
        if "row" not in equal:
            return []
        key = integer_in(equal["key"], *_LONG)
        subject.due = [row for row in subject.due if row[0] != key]
        return [(key, bytes_in(equal["row"]))]

    return make


def _delete(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    with subject.store.begin() as tx:
        del tx.table("rows")[given["key"]]
    key = integer_in(equal["key"], *_LONG)
    subject.due = [row for row in subject.due if row[0] != key]
    return []


def _create_table(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    subject.store.create_table(**given)
    return [("table", text_in(equal["name"]))]


def _settle(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
    try:
        subject.store.settle(**given)
    finally:
        for one in subject.store.in_doubt():
            subject.store.settle(one.name, commit=False)
    return []


def _of_session(name: str) -> Make:
    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
        session = subject.store.begin()
        try:
            getattr(session, name)(**given)
        finally:
            session.rollback()
        return []

    return make


def _scan(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
    with subject.store.begin() as tx:
        list(tx.scan(**given))
    return []


def _pop(table: Any, given: Given) -> object:
    found = table.pop(given["key"], given["default"])
    assert found is given["default"]  # of a row that is not there
    return found


def _setdefault(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    with subject.store.begin() as tx:
        tx.table("rows").setdefault(given["key"], given["default"])
    if any(row[0] == integer_in(equal["key"], *_LONG) for row in subject.due):
        return []
    return [(integer_in(equal["key"], *_LONG), bytes_in(equal["default"]))]


def _update(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    with subject.store.begin() as tx:
        try:
            tx.table("rows").update(given["other"], **given["kwds"])
        except NotImplementedError as error:  # Python iterates over no view of two dimensions
            raise TypeError from error
    written = [
        (integer_in(key, *_LONG), bytes_in(row)) for key, row in dict(equal["other"]).items()
    ]
    keys = [key for key, _ in written]
    subject.due = [row for row in subject.due if row[0] not in keys]
    return written


def _plain(name: str) -> Make:
    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
        getattr(subject.store, name)(**given)
        return []

    return make


def _begin(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
    subject.store.begin(**given).rollback()
    return []


def _put_row(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    with subject.store.begin() as tx:
        tx.put(**given)
    key, value = integer_in(equal["key"], *_LONG), equal["value"]
    subject.due = [row for row in subject.due if row[0] != key]
    assert equal["table"] == subject.store.table_id("rows")
    return [] if value is None else [(key, bytes_in(value))]


_KEY = {"key": lambda one: one.new_id()}
_LIVE = {"key": lambda one: one.live()}
_TABLE_ID = {"table": lambda one: one.store.table_id("rows")}
_DEFAULT = {**_KEY, "default": lambda _: None}
_ROW = {**_KEY, "row": lambda _: b"row"}
PageStoreSubject.calls = [
    Call("PageStore.begin", {"read_only": lambda _: False}, _begin),
    Call("PageStore.create_table", {"name": lambda one: f"t{one.new_id()}"}, _create_table),
    Call("PageStore.settle", {"name": lambda one: one.prepared(), "commit": lambda _: True},
         _settle),
    Call("PageStore.as_resource", {"name": lambda _: "rows"},
         named(lambda one, given: one.store.as_resource(**given))),
    Call("PageStore.backup", {"target": new_path}, _plain("backup")),
    Call("PageStore.table_id", {"name": lambda _: "rows"}, _plain("table_id")),
    Call("Session.table", {"name": lambda _: "rows"}, _of_session("table")),
    Call("Session.get", {**_TABLE_ID, **_KEY}, _of_session("get")),
    Call("Session.scan", {**_TABLE_ID, "start": lambda _: 0, "stop": lambda _: None}, _scan),
    Call("Session.rollback_to", {"savepoint": lambda _: 0}, _of_session("rollback_to")),
    Call("Session.prepare", {"name": lambda one: f"p{one.new_id()}"}, _of_session("prepare")),
    Call("Session.put", {**_TABLE_ID, **_KEY, "value": lambda _: b"row"}, _put_row),
    Call("Session.lock", {**_TABLE_ID, **_KEY}, _of_session("lock")),
    Call("Table.__setitem__", _ROW, _in_table(lambda t, a: t.__setitem__(a["key"], a["row"]))),
    Call("Table.__delitem__", _LIVE, _delete),
    Call("Table.for_update", _LIVE, _in_table(lambda t, a: t.for_update(a["key"]))),
    Call("Table.get", _DEFAULT, _in_table(lambda t, a: t.get(**a))),
    Call("Table.pop", _DEFAULT, _in_table(_pop)),
    Call("Table.setdefault", {**_KEY, "default": lambda _: b"row"}, _setdefault),
    Call("Table.update", {"other": lambda one: {one.new_id(): b"row"}, "kwds": lambda _: {}},
         _update),
    Call("Table.range", {"start": lambda _: 0, "stop": lambda _: None},
         _in_table(lambda t, a: list(t.range(**a)))),
]  # fmt: skip


# -- write-behind -------------------------------------------------------------------------------


class WriteBehindSubject(Subject):
    """A service whose target is down at first, and gets everything once it is opened again."""

    ordered = False

    def __init__(self, folder: Path) -> None:
        self.applied: list[Row] = []
        self.up = False
        """Whether the target is: a call that waits for it would have no end."""
        super().__init__(folder)

    def open(self) -> None:
        self.numbers: dict[int, Row] = {}
        self.up = self.up or bool(self.due)

        def apply(entry: PersistEntry) -> None:
            if not self.up:
                raise TargetDownError
            for code, table, key, value, _ in entry.operations:
                self.applied.append((code.name, table, key, value, entry.reference))

        self.service = WriteBehind(self.folder, {"t": apply}, on_incomplete="replay")

    def close(self) -> None:
        self.service.close(0.0)

    def write_another(self, body: bytes) -> Row:
        with self.service.begin() as tx:
            tx.insert("witness", body, body)
        assert tx.number is not None
        self.numbers[tx.number] = row = ("INSERT", "witness", body, body, "")
        return row

    def rows(self) -> list[Row]:
        assert self.service.drain(60)
        return self.applied


def row_in(value: Any) -> bytes | None:
    """The bytes that a row is stored as."""
    return encode_value(value).encode() if isinstance(value, Mapping) else bytes_in(value)


_FIELDS = {"table": text_in, "topic": text_in, "key": row_in, "value": row_in, "body": row_in}


def _operation(name: str, code: OperationCode) -> Make:
    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
        with subject.service.begin() as tx:
            getattr(tx, name)(**given)
        parts = [_FIELDS[one](equal[one]) for one in equal if one in ("table", "topic")]
        parts += [_FIELDS[one](equal[one]) for one in equal if one == "key"]
        parts += [_FIELDS[one](equal[one]) for one in equal if one in ("value", "body")]
        return [(code.name, *parts, *([None] * (3 - len(parts))), "")]

    return make


def _with_reference(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    with subject.service.begin(**given) as tx:
        tx.insert("table", b"k", b"v")
    return [("INSERT", "table", b"k", b"v", text_in(equal["reference"]))]


def _put(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    with subject.service.begin() as tx:
        tx.put(**given)
    code = OperationCode(equal["code"])
    value = None if equal["value"] is None else row_in(equal["value"])
    return [(code.name, text_in(equal["collection"]), row_in(equal["key"]), value, "")]


def _commit(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    subject.service.commit(**given)
    reference = text_in(equal["reference"])
    return [(code.name, c, key, value, reference) for code, c, key, value, _ in equal["operations"]]


def _commit_async(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    asyncio.run(subject.service.commit_async(**given))
    reference = text_in(equal["reference"])
    return [(code.name, c, key, value, reference) for code, c, key, value, _ in equal["operations"]]


def _discard(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    subject.service.discard(**given)
    number = integer_in(equal["number"], 1, _LONG[1])
    assert number is not None
    subject.due.remove(subject.numbers[number])
    return []


def _retry(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
    subject.service.retry(**given)
    return []


def _query(name: str) -> Make:
    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
        getattr(subject.service, name)(**given)
        return []

    return make


def _waiting(name: str) -> Make:
    """Call what waits for a target that is up."""

    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
        subject.up = True
        return _query(name)(subject, given, equal)

    return make


def _close(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    try:
        return _waiting("close")(subject, given, equal)
    finally:
        subject.close()  # what was refused has not closed it; then it is free
        subject.open()


_TARGET = {"target": lambda _: None}
_TABLE = {"table": lambda _: "table", "key": lambda _: {"id": 1}}
_VALUE = {**_TABLE, "value": lambda _: {"n": 2}, **_TARGET}
_REFERENCE = {"reference": lambda _: "reference"}
_OPERATIONS = [Operation(OperationCode.INSERT, "table", b"k", b"v", None)]
_NUMBER = {"number": lambda _: 1 << 40}
_TIMEOUT = {"timeout": lambda _: None}
WriteBehindSubject.calls = [
    Call("WriteBehind.begin", _REFERENCE, _with_reference),
    Call("WriteBehind.commit", {"operations": lambda _: _OPERATIONS, **_REFERENCE,
         "targets": lambda _: ["t"]}, _commit),
    Call("WriteBehind.commit_async", {"operations": lambda _: _OPERATIONS, **_REFERENCE,
         "targets": lambda _: ["t"]}, _commit_async),
    Call("WriteBehind.discard", _NUMBER, _discard),
    Call("WriteBehind.retry", _NUMBER, _retry),
    Call("WriteBehind.find", _NUMBER, _query("find")),
    Call("WriteBehind.pending", {"reference": lambda _: None}, _query("pending")),
    Call("WriteBehind.wait", {**_NUMBER, **_TIMEOUT}, _waiting("wait")),
    Call("WriteBehind.drain", _TIMEOUT, _waiting("drain")),
    Call("WriteBehind.replay", _TIMEOUT, _waiting("replay")),
    Call("WriteBehind.close", _TIMEOUT, _close),
    Call("WriteBehindTransaction.insert", _VALUE, _operation("insert", OperationCode.INSERT)),
    Call("WriteBehindTransaction.update", _VALUE, _operation("update", OperationCode.UPDATE)),
    Call("WriteBehindTransaction.delete", {**_TABLE, **_TARGET},
         _operation("delete", OperationCode.DELETE)),
    Call("WriteBehindTransaction.send", {"topic": lambda _: "topic", "body": lambda _: b"body",
         "key": lambda _: b"key", **_TARGET}, _operation("send", OperationCode.OPAQUE)),
    Call("WriteBehindTransaction.put", {"code": lambda _: OperationCode.INSERT,
         "collection": lambda _: "table", "key": lambda _: b"k", "value": lambda _: b"v",
         **_TARGET}, _put),
]  # fmt: skip


# -- outbox and keys ----------------------------------------------------------------------------


class MessagingSubject(Subject):
    """An outbox, and a handler with keys, over SQLite."""

    ordered = False

    def open(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.database = self.folder / "db"
        self.tm = TransactionManager(
            self.folder / "tm",
            {"lite": f"sqlite:///{self.database}?synchronous=off"},
            recovery_interval=None,
        )
        self.outbox = Outbox(self.tm, "lite")
        key = IdempotencyKey("lite", of="request", wait=0.0)

        @self.tm.transactional(key=key)
        def answer(request: object, value: object) -> object:  # noqa: ARG001
            return value

        self.answer = answer

    def close(self) -> None:
        self.tm.close()

    def write_another(self, body: bytes) -> Row:
        with self.tm.begin() as tx:
            self.outbox.add(tx, "witness", body)
        return ("witness", body, "{}")

    def rows(self) -> list[Row]:
        with closing(sqlite3.connect(self.database)) as lite:
            found = lite.execute("SELECT topic, body, headers FROM tallystick_outbox").fetchall()
        return [tuple(row) for row in found]


def _add(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    with subject.tm.begin() as tx:
        chosen = tx if given["transaction"] is None else given["transaction"]
        subject.outbox.add(chosen, *[given[one] for one in ("topic", "body", "headers")])
    return message_in(equal)


def message_in(equal: Given) -> Iterable[Row]:
    """The row of a message that was added."""
    headers = dict(equal["headers"] or {})
    assert all(isinstance(one, str) for pair in headers.items() for one in pair)
    return [
        (
            text_in(equal["topic"]),
            bytes_in(equal["body"]),
            encode_value(headers) if headers else "{}",
        )
    ]


def _answered(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    first = subject.answer(**given)
    second = subject.answer(**equal)
    assert first == second, "the outcome that was kept is another one"
    return []


def _of_consumer(name: str) -> Make:
    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
        getattr(subject.outbox, name)(**given)
        return []

    return make


def _forget_keys(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
    assert subject.answer("kept", 7) == 7
    manager = subject.tm if given["manager"] is None else given["manager"]
    forget_keys(manager, given["resource"], given["older_than"])
    assert subject.answer("kept", 7) == 7
    return []


def _from_journal(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
    from_journal(**given)
    return []


MessagingSubject.calls = [
    Call("Outbox.unpark", {"consumer": lambda _: "default"}, _of_consumer("unpark")),
    Call("Outbox.pending", {"consumer": lambda _: "default"}, _of_consumer("pending")),
    Call("forget_keys", {"manager": lambda _: None, "resource": lambda _: "lite",
         "older_than": lambda _: 1e9}, _forget_keys),
    Call("from_journal", {"body": lambda _: b"body"}, _from_journal),
    Call("Outbox.add", {"transaction": lambda _: None, "topic": lambda _: "topic",
         "body": lambda _: b"body", "headers": lambda _: None}, _add),
    Call("handler", {"request": lambda one: f"r{one.new_id()}", "value": lambda _: 1}, _answered),
]  # fmt: skip
