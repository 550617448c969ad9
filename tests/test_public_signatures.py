"""What an IDE shows of the public names: every parameter by name, and what it is for."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tallystick
from tallystick import (
    AtStake,
    Finding,
    Judgement,
    Outbox,
    Outcome,
    Severity,
    Span,
    TallystickError,
    TransactionManager,
    TransactionUsageError,
    UnsupportedFormatError,
    Xid,
)
from tallystick.printable import logger
from tallystick.rescue import Repair, Salvage
from tallystick.services.transactions import (
    BranchInDoubt,
    Message,
    Pending,
    Problem,
    RecoveryReport,
)
from tallystick.services.transactions.resources.sqlite import SqliteResource
from tallystick.services.write_behind import BacklogSize, PendingTransaction, TargetStatus

PACKAGES = (
    "tallystick",
    *(f"tallystick.services.{one}" for one in
      ("journal", "page_store", "transactions", "write_behind")),
    *(f"tallystick.testing{one}" for one in ("", ".chaos", ".simulate")),
)  # fmt: skip
OPEN = {
    # the arguments of a function that is called with them
    "Simulation.process", "Simulation.spawn", "MemoryFileSystem.apply", "RecordingFileSystem.apply",
    "Table.update",  # of `collections.abc.MutableMapping`
}  # fmt: skip
"""Entry points that take any number of arguments, as these belong to something else."""
MADE_BY_USERS = (
    "Journal", "AsyncJournal", "PageStore", "WriteBehind", "TransactionManager",
    "AsyncTransactionManager", "Outbox", "Relay", "IdempotencyKey", "Retry",
)  # fmt: skip


def public() -> Iterator[tuple[str, Any]]:
    """Yield each public class and function with its name, errors and choices aside."""
    seen = set()
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            plain = callable(thing) and not getattr(thing, "_is_protocol", False)
            errors = isinstance(thing, type) and issubclass(thing, BaseException)
            if plain and not errors and not hasattr(thing, "__members__") and thing not in seen:
                seen.add(thing)
                yield name, thing


def entry_points() -> Iterator[tuple[str, Any]]:
    """Yield what can be called of them: functions, constructors, public methods."""
    for name, thing in public():
        yield name, thing
        if isinstance(thing, type):
            for method in dir(thing):
                if not method.startswith("_") and inspect.isroutine(getattr(thing, method)):
                    yield f"{name}.{method}", getattr(thing, method)


ENTRY_POINTS = dict(entry_points())


def test_no_public_entry_point_hides_its_parameters() -> None:
    assert len(ENTRY_POINTS) > 150
    hidden = {
        name
        for name, thing in ENTRY_POINTS.items()
        for one in inspect.signature(thing).parameters.values()
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }
    assert hidden == OPEN


def test_every_public_entry_point_says_what_it_does() -> None:
    assert [name for name, thing in ENTRY_POINTS.items() if not thing.__doc__] == []


@pytest.mark.parametrize("name", MADE_BY_USERS)
def test_the_class_describes_every_parameter_that_it_is_made_with(name: str) -> None:
    made = getattr(tallystick, name)
    described = inspect.getdoc(made) or ""
    for one in inspect.signature(made).parameters.values():
        assert f"    {one.name}: " in described, one.name
        assert one.annotation is not inspect.Parameter.empty


def test_the_asynchronous_opening_takes_what_the_constructor_takes() -> None:
    opening = inspect.signature(tallystick.AsyncJournal.open).parameters
    made = inspect.signature(tallystick.AsyncJournal).parameters
    assert list(opening) == list(made) == list(inspect.signature(tallystick.Journal).parameters)
    assert [one.default for one in opening.values()] == [one.default for one in made.values()]


class Odd:
    """An object that is nothing that anyone asks for."""

    def __repr__(self) -> str:
        return "<odd>"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """Return right values for the parameters that have no default, by class."""
    tm = TransactionManager(tmp_path / "tm", {"db": f"sqlite:///{tmp_path}/db"})
    with tm:
        path = {"path": tmp_path / "new"}
        yield {
            **dict.fromkeys(("Journal", "AsyncJournal", "PageStore"), path),
            "WriteBehind": {**path, "targets": {"t": print}},
            "TransactionManager": {**path, "resources": {}},
            "AsyncTransactionManager": {"manager": tm},
            "Outbox": {"manager": tm, "resource": "db"},
            "Relay": {"outbox": Outbox(tm, "db"), "deliver": print},
            "IdempotencyKey": {"resource": "db", "of": "key"},
            "Retry": {},
        }


@pytest.mark.parametrize("name", MADE_BY_USERS)
def test_a_wrong_argument_is_refused_by_its_name_and_nothing_is_made(
    name: str, made: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    for parameter in inspect.signature(getattr(tallystick, name)).parameters:
        with pytest.raises((TypeError, ValueError, TallystickError)) as caught:
            getattr(tallystick, name)(**{**made[name], parameter: Odd()})
        known = {"system": "<odd>", "manager": "Odd", "node": "text", "log": "log of type Odd"}
        words = (parameter, known.get(parameter, parameter))
        assert any(one in str(caught.value) for one in words), (parameter, str(caught.value))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("system", "settings", "words"),
    [
        ("tally", {"segmentsize": 1}, "has no segmentsize; did you mean segment_size?"),
        ("tally", {"colour": 1}, "has no colour; expected segment_size, sector_size,"),
        ("tally", {"segment_size": 1}, "segment_size must be a multiple of the sector, at least"),
        ("tally", {"segment_size": "1"}, "segment_size is of type str; expected an integer"),
        ("tally", {"compression": "lz4"}, "compression is 'lz4'; expected none, zlib or zstd"),
        ("tally", {"recycle": "no"}, "recycle is of type str; expected True or False"),
        ("tally", {3: 4}, "a name in settings is of type int; expected a text"),
        ("tally", ["spares"], "settings is of type list; expected Settings, or a mapping"),
        ("jboss", {"generation": "g9"}, "generation is 'g9'; expected g1a, g1b, g1c, g1d, g2 or"),
        ("jboss", {"file_size": "1"}, "file_size is of type str; expected an integer"),
        ("jboss", {"delay_s": 1}, "settings has no delay_s; did you mean delay?"),
        ("jboss", {"prefix": 1}, "prefix is of type int; expected a text"),
    ],
)
def test_a_wrong_setting_of_a_journal_is_told_by_its_name(
    system: str, settings: Any, words: str, tmp_path: Path
) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        tallystick.Journal(tmp_path / "log", system=system, settings=settings)
    assert not (tmp_path / "log").exists()


def test_settings_of_write_behind_may_be_a_mapping(tmp_path: Path) -> None:
    with tallystick.WriteBehind(tmp_path / "a", {}, settings={"batch_max": 7}) as behind:
        assert behind.settings.batch_max == 7
    with pytest.raises(ValueError, match="has no batch_maxx; did you mean batch_max"):
        tallystick.WriteBehind(tmp_path / "b", {}, settings={"batch_maxx": 7})


def test_a_key_that_has_to_be_awaited_is_refused(tmp_path: Path) -> None:
    async def key() -> bytes:
        return bytes(32)

    with pytest.raises(TransactionUsageError, match="key is called and not awaited"):
        tallystick.Journal(tmp_path / "log", key=key)  # type: ignore[arg-type]


def test_what_a_historic_journal_cannot_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFormatError, match="jboss logs cannot be encrypted"):
        tallystick.Journal(tmp_path / "log", system="jboss", key=lambda: bytes(32))


GIVEN = {"Away", "Fault", "IdempotencyKey", "Retry", "Scenario", "WriteBehindSettings"}
"""Values that a program makes itself, shown as it would write them."""


def test_every_public_value_is_printed_as_text() -> None:
    values = {name: one for name, one in public() if dataclasses.is_dataclass(one)}
    assert len(values) > 25
    assert {name for name, one in values.items() if one.__str__ is object.__str__} == GIVEN


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Problem("pg", "max_prepared_transactions is 0", "Set it"),
         "pg: max_prepared_transactions is 0. Set it"),
        (Xid(1, b"\x61", b"\x62"), "1:61:62"),
        (AtStake(1, 20_000), "1 transaction, 20,000 rows"),
        (AtStake(), "it is not known how much"),
        (Judgement(), "CANNOT TELL: The reader of this system does not judge its logs."),
        (Span(0, 512, Outcome.TORN, "group", "cut"), "group, 512 bytes at 0, torn: cut"),
        (Finding("c", Severity.LOSS, "h2", "/l", "Gone", "/l/a\x1b", 7, advice="Look"),
         "/l/a\\x1b at 7: loss: Gone. Look"),
        (BranchInDoubt("pg", Xid(1, b"a"), "away", "n1"), "1:61: in pg, of node n1: away"),
        (RecoveryReport(), "Branches: none was in doubt."),
        (RecoveryReport([("pg", Xid(1, b"a"))], unreachable={"m": "refused"}),
         "Branches: 1 committed.\nCannot be asked: m: refused."),
        (Pending(3, 1, 2.5), "3 messages wait, 1 of them parked; the oldest for 2.5 s"),
        (Message(7, "orders", b"abc"), "message 7 about orders, 3 bytes"),
        (Repair("log", "copy"), "log: nothing was mended"),
        (Salvage("log", "a.sql", "h2-script", Counter(t=2), Counter({"cut": 1})),
         "log: 2 rows in a.sql; 1 could not be brought"),
        (BacklogSize(), "0 transactions of 0 bytes are pending"),
        (Pending(1, 0, 2.5), "1 message waits, 0 of them parked; the oldest for 2.5 s"),
        (BacklogSize(1, 5, 1.0), "1 transaction of 5 bytes is pending; the oldest for 1.0 s"),
        (PendingTransaction(5, "o-1", 0, 2, (TargetStatus("db", "retrying", 2, "away"),)),
         "transaction 5 (o-1), 2 operations: db: retrying after 2 attempts, the last time away"),
    ],
)  # fmt: skip
def test_a_public_value_is_a_sentence(value: object, text: str) -> None:
    assert str(value) == text


def test_what_was_read_is_printed_log_by_log(tmp_path: Path) -> None:
    with tallystick.Journal(tmp_path / "log") as log:
        log.append(b"one")
    path = tmp_path / "log"
    for read in (tallystick.triage, tallystick.explain, tallystick.inspect):
        assert str(read(path)).startswith(f"{path} (")
    assert str(tallystick.triage(path)).endswith(f"inspect {path}")
    assert str(next(tallystick.scan(path))).endswith("number 1, bytes of body 3")


def test_a_message_of_the_log_says_what_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    about = {"resource": "pg", "gtrid": "61\n62", "other": 3}
    logger("tallystick.test").warning("cannot be %s", "asked", extra=about | {"answer": "refused"})
    logger("tallystick.test").warning("nothing more")
    assert [one.getMessage() for one in caplog.records] == [
        "cannot be asked (resource: pg, gtrid: 61\\n62, answer: refused)", "nothing more",
    ]  # fmt: skip


def test_an_unreachable_database_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    resources = {"stock": f"sqlite:///{tmp_path}/none/stock.db"}
    with TransactionManager(tmp_path / "tm", resources, recovery_interval=None) as tm:
        tm.recover()
    said = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert any("(resource: stock, answer: unable to open" in one for one in said), said


def test_two_databases_that_cannot_prepare_are_refused_when_the_manager_is_made(
    tmp_path: Path,
) -> None:
    one, other = (f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "other"))
    for place in (other, SqliteResource("b", tmp_path / "other.db")):
        with pytest.raises(TransactionUsageError, match="'a' and 'b' cannot prepare, and are not"):
            TransactionManager(tmp_path / "tm", {"a": one, "b": place})
    reading = {"a": one, "b": f"{one}?begin=deferred"}  # one database under two names
    with TransactionManager(tmp_path / "tm", reading) as tm, tm.begin() as tx:
        tx["b"].execute("SELECT 1")


def test_what_is_no_resource_is_an_error_for_type_checkers_and_at_once(tmp_path: Path) -> None:
    with pytest.raises(TransactionUsageError, match="int cannot be the resource 'a'"):
        TransactionManager(tmp_path / "tm", {"a": 3})  # type: ignore[dict-item]
