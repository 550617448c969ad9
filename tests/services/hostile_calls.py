"""Calls of services with one odd argument each, and what their logs hold afterwards.

A `Call` names a public method and gives a right value for each of its parameters; its ``make``
calls it and returns the rows that the log must hold for it. A `Subject` is an open service; it is
closed and opened again to compare all rows, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import random
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick.services.journal import AsyncJournal, Journal
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.live.settings import Settings
from tests.hostile import REFUSALS, VALUES, bytes_in, integer_in

Row = tuple[object, ...]
"""What a log holds for one record: its type, its id, its bytes."""
Given = Mapping[str, Any]
Make = Callable[[Any, Given, Given], Iterable[Row]]
"""Calls the subject with some arguments, and returns rows that are made of equal ones."""
SEGMENTS = Settings(segment_size=64 << 10)
_KEY = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True)
class Call:
    """A public method, a right value for each of its parameters, and what calls it."""

    method: str
    right: Mapping[str, Callable[[Any], Any]]
    make: Make


def parameters(owner: type) -> dict[str, list[str]]:
    """The parameters of each public method of a class that takes any, ``self`` aside."""
    found = {}
    for name in dir(owner):
        member = inspect.getattr_static(owner, name)
        if name.startswith("_") or not (inspect.isfunction(member) or hasattr(member, "__func__")):
            continue
        names = inspect.signature(getattr(owner, name)).parameters
        if taken := [one for one in names if one not in ("self", "_")]:
            found[f"{owner.__name__}.{name}"] = taken
    return found


class Subject:
    """An open service in a folder, and the rows that its log must hold."""

    calls: Sequence[Call]
    ordered = True
    """Whether `rows` come in the order in which they were written, each time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.due: list[Row] = []
        self.kept_from = 0
        self._number = 0
        self.open()

    def open(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def write_another(self, body: bytes) -> Row:
        """Write a row as another caller does."""
        raise NotImplementedError

    def rows(self) -> list[Row]:
        """The rows of the log."""
        raise NotImplementedError

    def new_id(self) -> int:
        self._number += 1
        return 1_000 + self._number

    def witness(self) -> None:
        """Write in another thread, which must not have noticed anything."""
        errors: list[BaseException] = []

        def work() -> None:
            try:
                self.due.append(self.write_another(b"witness %d" % self.new_id()))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert errors == []

    def verify(self) -> None:
        """Open it again: it holds every row that was acknowledged, in order, and no other."""
        self.close()
        self.open()
        found = self.rows()
        if not self.ordered:
            more, less = set(found) - set(self.due), set(self.due) - set(found)
            assert (more, less) == (set(), set()), (list(more)[:2], list(less)[:2])
            return
        least = len(self.due) - self.kept_from
        assert len(found) >= least, "something acknowledged is gone"
        due = self.due[len(self.due) - len(found) :]
        assert [pair for pair in zip(found, due, strict=True) if pair[0] != pair[1]][:2] == []


def try_odd_arguments(kind: type[Subject], folder: Path, share: float) -> None:
    """Pass a share of all odd values for each parameter of each call, and another's call after."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - the run can be repeated with it
    rng = random.Random(seed)
    for number, call in enumerate(kind.calls):
        subject = kind(folder / str(number))
        try:
            for parameter, value in itertools.product(call.right, VALUES):
                if rng.random() < share:
                    _try(subject, call, parameter, value)
                    subject.witness()
            subject.verify()
        except BaseException as error:
            error.add_note(call.method)
            raise
        finally:
            subject.close()


def _try(subject: Subject, call: Call, parameter: str, value: str) -> None:
    right = {name: make(subject) for name, make in call.right.items()}
    given, equal = ({**right, parameter: VALUES[value]()} for _ in range(2))
    try:
        rows = list(call.make(subject, given, equal))
    except REFUSALS:
        return
    except BaseException as error:
        error.add_note(f"{call.method}({parameter}={value})")
        raise
    subject.due += rows


# -- journals -----------------------------------------------------------------------------------


class JournalSubject(Subject):
    """A journal for threads."""

    shared = False

    def open(self) -> None:
        self.journal: Any = Journal(self.folder, settings=SEGMENTS, shared=self.shared)

    def close(self) -> None:
        self.journal.close()

    def write_another(self, body: bytes) -> Row:
        self.journal.append(body)
        return ("append", None, body)

    def live(self) -> int:
        """The id of a record that was just added."""
        number = self.new_id()
        self.journal.add(number, b"live", 5)
        self.due.append(("add", number, b"live"))
        return number

    def follow(self, given: Given) -> object:
        """The first record of a `follow` that may have no end."""
        with contextlib.closing(self.journal.follow(**given)) as found:
            return next(found, None)

    def rows(self) -> list[Row]:
        types = ("append", "add", "update", "delete")
        records = list(self.journal.replay())
        given_up = {one.transaction for one in records if one.type == "rollback"}
        return [
            (one.type, one.record_id, one.body)
            for one in records
            if one.type in types and (one.transaction is None or one.transaction not in given_up)
        ]


class SharedSubject(JournalSubject):
    """A journal that processes share."""

    shared = True


class _Awaited:
    """An object whose coroutine functions are run to their end."""

    def __init__(self, inner: Any, runner: asyncio.Runner) -> None:
        self.inner, self._runner = inner, runner

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.inner, name)

        async def collected(found: Any) -> list[Any]:
            return [one async for one in found]

        def call(*arguments: Any, **options: Any) -> Any:
            made = member(*arguments, **options)
            if inspect.iscoroutine(made):
                return self._runner.run(made)
            if hasattr(made, "__aiter__"):
                return self._runner.run(collected(made))
            return _Awaited(made, self._runner) if name == "transaction" else made

        return call if callable(member) else member


class AsyncSubject(JournalSubject):
    """A journal for tasks."""

    def open(self) -> None:
        self._runner = asyncio.Runner()
        self.journal = _Awaited(AsyncJournal(self.folder, settings=SEGMENTS), self._runner)

    def close(self) -> None:
        super().close()
        self._runner.close()

    def write_another(self, body: bytes) -> Row:
        self.journal.submit(body).wait()
        return ("append", None, body)

    def follow(self, given: Given) -> object:
        async def first() -> object:
            async with contextlib.aclosing(self.journal.inner.follow(**given)) as found:
                return await anext(found, None)

        return self.run(first())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)


def _append(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    subject.journal.append(**given)
    return [("append", None, bytes_in(equal["body"]))]


def _submit(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    ticket = subject.journal.submit(**given)
    body = given["body"]
    with contextlib.suppress(TypeError, ValueError):  # most cannot be changed
        memoryview(body).cast("B")[:1] = b"\xee"
    ticket.wait()
    return [("append", None, bytes_in(equal["body"]))]


def _append_many(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    subject.journal.append_many(**given)
    return [("append", None, bytes_in(one)) for one in equal["bodies"]]


def _keyed(kind: str, *, in_transaction: bool) -> Make:
    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
        transaction = subject.journal.transaction() if in_transaction else None
        try:
            getattr(transaction or subject.journal, kind)(**given)
        except BaseException:
            if transaction is not None:
                transaction.rollback()
            raise
        if transaction is not None:
            transaction.commit()
        body = bytes_in(equal["body"]) if "body" in equal else b""
        if "user_type" in equal:
            assert integer_in(equal["user_type"], -128, 127) is not None
        return [(kind, integer_in(equal["record_id"], *_KEY), body)]

    return make


def _append_in(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    transaction = subject.journal.transaction()
    try:
        transaction.append(**given)
    except BaseException:
        transaction.rollback()
        raise
    transaction.commit()
    return [("append", None, bytes_in(equal["body"]))]


def _prepare(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    transaction = subject.journal.transaction()
    try:
        transaction.prepare(**given)
        (found,) = subject.journal.prepared()
        assert found.extra == bytes_in(equal["extra"])
    finally:
        transaction.rollback()
    return []


def _checkpoint(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    subject.journal.checkpoint(**given)
    assert equal["lsn"] is None or integer_in(equal["lsn"], 0, _KEY[1]) is not None
    subject.kept_from = len(subject.due)
    return []


def _plain(name: str) -> Make:
    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
        getattr(subject.journal, name)(**given)
        return []

    return make


def _replay(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
    list(subject.journal.replay(**given))
    return []


def _follow(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
    subject.witness()  # or it would wait for a record
    subject.follow(given)
    for name in ("poll_s", "idle_s"):
        assert isinstance(equal[name], int | float | None)
    return []


def named(call: Callable[[Any, Given], Any]) -> Make:
    """Call what makes a resource, which has the name that was given."""

    def make(subject: Any, given: Given, equal: Given) -> Iterable[Row]:
        resource = call(subject, given)
        assert type(resource.name) is str
        assert resource.name == str.__str__(equal["name"])
        return []

    return make


def _open(subject: Any, given: Given, equal: Given) -> Iterable[Row]:  # noqa: ARG001
    options = {name: value for name, value in given.items() if name != "path"}

    async def opened() -> None:
        journal = await AsyncJournal.open(given["path"], **options)
        await journal.close()

    subject.run(opened())
    return []


def new_path(subject: Subject) -> str:
    """A path in the folder of a subject that nothing has."""
    return f"{subject.folder} {subject.new_id()}"


_BODY = {"body": lambda _: b"body"}
_RECORD = {"record_id": lambda one: one.new_id(), **_BODY, "user_type": lambda _: 3}
_LIVE = {**_RECORD, "record_id": lambda one: one.live()}
_LIVE_ID = {"record_id": _LIVE["record_id"]}
_NUMBER = {"transaction": lambda _: 12_345}


def _journal_calls(face: str, transaction: str) -> list[Call]:
    return [
        Call(f"{face}.append", _BODY, _append),
        Call(f"{face}.submit", _BODY, _submit),
        Call(f"{face}.append_many", {"bodies": lambda _: [b"a", b"b"]}, _append_many),
        Call(f"{face}.add", _RECORD, _keyed("add", in_transaction=False)),
        Call(f"{face}.update", _LIVE, _keyed("update", in_transaction=False)),
        Call(f"{face}.delete", _LIVE_ID, _keyed("delete", in_transaction=False)),
        Call(f"{face}.checkpoint", {"lsn": lambda _: 0}, _checkpoint),
        Call(f"{face}.compact", {"force": lambda _: False}, _plain("compact")),
        Call(f"{face}.replay", {"from_lsn": lambda _: 0, "from_time": lambda _: None}, _replay),
        Call(
            f"{face}.follow",
            {"from_lsn": lambda _: 0, "poll_s": lambda _: 0.01, "idle_s": lambda _: 0.0},
            _follow,
        ),
        Call(f"{face}.backup", {"target": new_path, "progress": lambda _: None}, _plain("backup")),
        Call(
            f"{face}.as_resource",
            {"name": lambda _: "mail"},
            named(lambda one, given: one.journal.as_resource(**given)),
        ),
        Call(f"{face}.commit_prepared", _NUMBER, _plain("commit_prepared")),
        Call(f"{face}.rollback_prepared", _NUMBER, _plain("rollback_prepared")),
        Call(f"{transaction}.append", _BODY, _append_in),
        Call(f"{transaction}.add", _RECORD, _keyed("add", in_transaction=True)),
        Call(f"{transaction}.update", _LIVE, _keyed("update", in_transaction=True)),
        Call(f"{transaction}.delete", _LIVE_ID, _keyed("delete", in_transaction=True)),
        Call(f"{transaction}.prepare", {"extra": lambda _: b"", "xid": lambda _: None}, _prepare),
    ]


JournalSubject.calls = _journal_calls("Journal", "JournalTransaction")
AsyncSubject.calls = [
    *_journal_calls("AsyncJournal", "AsyncJournalTransaction"),
    Call(
        "AsyncJournal.open",
        {
            "path": new_path,
            "system": lambda _: "tally",
            "shared": lambda _: False,
            "settings": lambda _: SEGMENTS,
            "key": lambda _: None,
            "fs": lambda _: LOCAL,
        },
        _open,
    ),
]
