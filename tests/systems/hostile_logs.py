"""The live logs of all systems in their roles, called with one odd argument each.

See `tests.services.hostile_calls`, whose `Subject` these are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from tallystick.records import State
from tallystick.roles import DecisionOutcome, Operation, OperationCode
from tallystick.systems.bitronix.live.role import BitronixDecisionLog
from tallystick.systems.cloudtran.live.role import CloudtranPersistLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import (
    compressed_int,
    compressed_long,
    format_id,
)
from tallystick.systems.derby.live.log import LogToFile
from tallystick.systems.h2.live.role import H2UndoRedoLog
from tallystick.systems.jboss.live.role import JBossRecordJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.decision_log import TallyDecisionLog
from tallystick.systems.tally.live.roles.persist_log import TallyPersistLog
from tallystick.systems.tally.live.roles.record_journal import TallyRecordJournal
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tests.hostile import bytes_in, integer_in
from tests.services.hostile_calls import SEGMENTS, Call, Given, Make, Row, Subject

_LONG = (-(1 << 63), (1 << 63) - 1)
_NAMES = frozenset({"a", "b"})


class _Log(Subject):
    """A log in a role."""

    ordered = False
    make_log: Any
    """Opens the log at a path."""

    def open(self) -> None:
        self.log: Any = type(self).make_log(str(self.folder))

    def close(self) -> None:
        self.log.close()


def _ignored(name: str) -> Make:
    """Call what leaves no row."""

    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
        ticket = getattr(subject.log, name)(**given)
        if hasattr(ticket, "wait"):
            ticket.wait()
        return []

    return make


def _native(role: Callable[[TallyLog], Any]) -> Callable[[str], Any]:
    return staticmethod(lambda path: role(TallyLog(path, settings=SEGMENTS)))


# -- record journals ----------------------------------------------------------------------------


class RecordJournals(_Log):
    """A record journal; a row is an added record."""

    def write_another(self, body: bytes) -> Row:
        number = self.new_id()
        self.log.add(number, body, 1).wait()
        return (number, body)

    def live(self) -> int:
        row = self.write_another(b"live")
        self.due.append(row)
        number = row[0]
        assert isinstance(number, int)
        return number

    def rows(self) -> list[Row]:
        return [(one.record_id, one.body) for one in self.log.live_records()]


def _keyed(name: str, *, in_transaction: bool = False) -> Make:
    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
        ticket = getattr(subject.log, name)(**given)
        if in_transaction:
            subject.log.commit(given["transaction"]).wait()
        else:
            ticket.wait()
        return [(integer_in(equal["record_id"], *_LONG), bytes_in(equal["body"]))]

    return make


def _delete(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    subject.log.delete(**given).wait()
    number = integer_in(equal["record_id"], *_LONG)
    subject.due = [row for row in subject.due if row[0] != number]
    return []


def _prepare(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    subject.log.prepare(**given).wait()
    number = integer_in(equal["transaction"], *_LONG)
    (found,) = [one for one in subject.log.prepared() if one.transaction == number]
    assert found.extra == bytes_in(equal["extra"])
    subject.log.rollback(number).wait()
    return []


_RECORD = {"record_id": lambda one: one.new_id(), "body": lambda _: b"body"}
_TYPED = {**_RECORD, "user_type": lambda _: 3}
_LIVE = {**_TYPED, "record_id": lambda one: one.live()}
_IN = {"transaction": lambda one: one.new_id()}
RecordJournals.calls = [
    Call("add", _TYPED, _keyed("add")),
    Call("update", _LIVE, _keyed("update")),
    Call("delete", {"record_id": _LIVE["record_id"]}, _delete),
    Call("add_in", {**_IN, **_TYPED}, _keyed("add_in", in_transaction=True)),
    Call("update_in", {**_IN, **_LIVE}, _keyed("update_in", in_transaction=True)),
    Call("prepare", {**_IN, "extra": lambda _: b"extra"}, _prepare),
    Call("commit", _IN, _ignored("commit")),
    Call("rollback", _IN, _ignored("rollback")),
]


class TallyRecords(RecordJournals):
    """The native log."""

    make_log = _native(TallyRecordJournal)


class JBossRecords(RecordJournals):
    """A circular journal."""

    make_log = staticmethod(lambda path: JBossRecordJournal(path, JournalSettings(file_size=65536)))


# -- decision logs ------------------------------------------------------------------------------


class DecisionLogs(_Log):
    """A decision log; a row is an open decision."""

    def write_another(self, body: bytes) -> Row:
        self.log.decide(body, _NAMES).wait()
        return (body, _NAMES)

    def rows(self) -> list[Row]:
        return [(one.gtrid, one.resources) for one in self.log.open_decisions().values()]


def _decide(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    subject.log.decide(**given).wait()
    return [(bytes_in(equal["gtrid"]), frozenset(equal["resources"]))]


_GTRID = {"gtrid": lambda one: b"gtrid %d" % one.new_id(), "resources": lambda _: ["a", "b"]}
DecisionLogs.calls = [
    Call("decide", _GTRID, _decide),
    Call("note", {"state": lambda _: State.PREPARED, **_GTRID}, _ignored("note")),
    Call("finish", {**_GTRID, "outcome": lambda _: DecisionOutcome.COMMITTED}, _ignored("finish")),
    Call("settle", {"gtrid": _GTRID["gtrid"]}, _ignored("settle")),
]


class TallyDecisions(DecisionLogs):
    """The native log."""

    make_log = _native(TallyDecisionLog)


class BitronixDecisions(DecisionLogs):
    """A journal of two files."""

    make_log = staticmethod(lambda path: BitronixDecisionLog(path))


# -- undo/redo logs -----------------------------------------------------------------------------


class UndoRedoLogs(_Log):
    """An undo/redo log; a row is a row."""

    def write_another(self, body: bytes) -> Row:
        key = self.new_id()
        self.log.commit_rows(4, {(1, key): body})
        return (1, key, body)

    def rows(self) -> list[Row]:
        found = _Rows()
        self.log.recover(found)
        return list(found.rows.values())


class _Rows:
    """A handler of recovery that keeps the rows."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], Row] = {}

    def undo_page(self, page: int, image: bytes | None) -> None: ...

    def redo_truncate(self, table: int) -> None: ...

    def redo_add(self, table: int, key: int, row: bytes) -> None:
        self.rows[table, key] = (table, key, row)

    def redo_remove(self, table: int, key: int) -> None: ...


def _log_row(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    session = given["session"]
    try:
        subject.log.log_row(**given)
    except BaseException:
        with suppress(Exception):  # of no session, perhaps
            subject.log.rollback(session)
        raise
    subject.log.commit(session).wait()
    table, key = (integer_in(equal[name], *_LONG) for name in ("table", "key"))
    return [] if equal["row"] is None else [(table, key, bytes_in(equal["row"]))]


def _commit_rows(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    subject.log.commit_rows(**given)
    return [(*place, bytes_in(row)) for place, row in equal["rows"].items()]


def _prepare_commit(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    subject.log.prepare_commit(**given).wait()
    subject.log.rollback(given["session"]).wait()
    assert isinstance(equal["name"], str)
    return []


_SESSION: Mapping[str, Callable[[Any], Any]] = {"session": lambda _: 9}
_PLACE: Mapping[str, Callable[[Any], Any]] = {
    "table": lambda _: 2,
    "key": lambda one: one.new_id(),
    "row": lambda _: b"row",
}
_IMAGE: Mapping[str, Callable[[Any], Any]] = {
    "page": lambda one: one.new_id(),
    "image": lambda _: None,
}
UndoRedoLogs.calls = [
    Call("log_row", {**_SESSION, **_PLACE}, _log_row),
    Call("commit_rows", {**_SESSION, "rows": lambda one: {(3, one.new_id()): b"r"}}, _commit_rows),
    Call("log_truncate", {**_SESSION, "table": lambda _: 77}, _ignored("log_truncate")),
    Call(
        "add_undo",
        {"page": lambda one: one.new_id(), "image": lambda _: None},
        _ignored("add_undo"),
    ),
    Call(
        "prepare_commit", {**_SESSION, "name": lambda one: f"name {one.new_id()}"}, _prepare_commit
    ),
    Call("commit", _SESSION, _ignored("commit")),
    Call("rollback", _SESSION, _ignored("rollback")),
]


class TallyRows(UndoRedoLogs):
    """The native log."""

    make_log = _native(TallyUndoRedoLog)


class H2Rows(UndoRedoLogs):
    """A log in a page store file."""

    make_log = staticmethod(lambda path: H2UndoRedoLog(path))


# -- persist logs -------------------------------------------------------------------------------


class PersistLogs(_Log):
    """A persist log; a row is an operation that is pending."""

    def write_another(self, body: bytes) -> Row:
        operation = Operation(OperationCode.OPAQUE, "c", b"k", body)
        self.log.persisting(("a",), [operation])[1].wait()
        return (operation, "")

    def rows(self) -> list[Row]:
        return [
            (one, entry.reference) for entry, _ in self.log.pending() for one in entry.operations
        ]


def _persisting(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    fields = [given[name] for name in ("code", "collection", "key", "value", "target")]
    subject.log.persisting(given["targets"], [Operation(*fields)], given["reference"])[1].wait()
    key, value = bytes_in(equal["key"]), equal["value"]
    value = None if value is None else bytes_in(value)
    assert key is not None
    collection, reference = (str.__str__(equal[one]) for one in ("collection", "reference"))
    if not [*equal["targets"]]:  # nothing waits for it
        return []
    return [(Operation(OperationCode(equal["code"]), collection, key, value, None), reference)]


def _discard(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
    subject.log.discard(**given).wait()
    # What it names is given up, and no other.
    left = subject.rows()
    given_up = [row for row in subject.due if row not in left]
    assert len(given_up) == 1
    subject.due.remove(given_up[0])
    return []


_ENTRY: Mapping[str, Callable[[Any], Any]] = {
    "targets": lambda _: ("a", "b"),
    "reference": lambda _: "reference",
    "code": lambda _: OperationCode.UPDATE,
    "collection": lambda _: "collection",
    "key": lambda _: b"key",
    "value": lambda _: b"value",
    "target": lambda _: None,
}
_HELD: Mapping[str, Callable[[Any], Any]] = {"targets": lambda _: ("b",)}
PersistLogs.calls = [
    Call("persisting", _ENTRY, _persisting),
    Call("persisted", {"number": lambda _: 987_654, **_HELD}, _ignored("persisted")),
    Call("persisted_all", {"numbers": lambda _: [987_654], **_HELD}, _ignored("persisted_all")),
    Call("discard", {"number": lambda _: 987_654}, _discard),
]


class TallyEntries(PersistLogs):
    """The native log."""

    make_log = _native(TallyPersistLog)


class CloudtranEntries(PersistLogs):
    """A block log."""

    make_log = staticmethod(
        lambda path: CloudtranPersistLog(path, settings=LogSettings(persisted_flush_millis=2))
    )


# -- Derby's log --------------------------------------------------------------------------------


class DerbyRecords(_Log):
    """Derby's log; a row is the optional data of an operation."""

    make_log = staticmethod(lambda path: LogToFile(path, buffer_size=1 << 15))

    def begun(self) -> int:
        number = self.log.begin()
        assert isinstance(number, int)
        return number

    def write_another(self, body: bytes) -> Row:
        number = self.begun()
        self.log.log(number, _INSERT, body)
        self.log.commit(number)
        return (body,)

    def rows(self) -> list[Row]:
        records = [body for _, body in self.log.replay()]
        return [(one.optional,) for one in records if one.operation == operations.INSERT]


_INSERT = (
    format_id(operations.INSERT)
    + b"".join(map(compressed_long, (0, 1168, 1, 0)))
    + compressed_int(6)
    + b"\0\0\0\1"
)


def _log(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    subject.log.log(given["number"], _INSERT, given["optional"])
    subject.log.commit(given["number"])
    return [(bytes_in(equal["optional"]),)]


_NUMBER: Mapping[str, Callable[[Any], Any]] = {"number": lambda one: one.begun()}
DerbyRecords.calls = [
    Call("log", {**_NUMBER, "optional": lambda _: b"row"}, _log),
    Call("commit", _NUMBER, _ignored("commit")),
    Call("abort", _NUMBER, _ignored("abort")),
    Call("flush", {"instant": lambda one: one.log.end - 1}, _ignored("flush")),
]

LOGS: dict[str, type[Subject]] = {
    "record journal of tally": TallyRecords,
    "record journal of jboss": JBossRecords,
    "decision log of tally": TallyDecisions,
    "decision log of bitronix": BitronixDecisions,
    "undo/redo log of tally": TallyRows,
    "undo/redo log of h2": H2Rows,
    "persist log of tally": TallyEntries,
    "persist log of cloudtran": CloudtranEntries,
    "log of derby": DerbyRecords,
}
