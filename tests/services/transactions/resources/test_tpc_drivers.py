"""Drivers' own two-phase calls, against a real server: psycopg2 and psycopg 3."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import psycopg2
import psycopg2.errors
import psycopg2.extensions
import pytest

from tallystick.errors import HeuristicError, TransactionUsageError
from tallystick.roles import DecisionOutcome
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.resources.pep249 import TpcResource
from tests.servers import Server

pytestmark = pytest.mark.postgres

_names = itertools.count(1)
DRIVERS: dict[str, tuple[Any, type[Exception]]] = {
    "psycopg2": (psycopg2, psycopg2.errors.UndefinedObject),
    "psycopg": (psycopg, psycopg.errors.UndefinedObject),
}
CONNECTIONS: dict[Any, type[Any]] = {
    psycopg2: psycopg2.extensions.connection,
    psycopg: psycopg.Connection,
}


class Stop(BaseException):
    """The process is gone."""


class Place:
    """A table, reached through a driver's own calls and, beside it, by a URL."""

    def __init__(self, folder: Path, url: str, driver: str) -> None:
        self.folder = folder
        self.driver, self.unknown = DRIVERS[driver]
        number = next(_names)
        self.urls = {}
        for name in ("driver", "url"):
            self.ask(f"CREATE DATABASE tpc{number}{name}", url)
            self.urls[name] = f"{url.rpartition('/')[0]}/tpc{number}{name}"
            self.ask("CREATE TABLE t (id INTEGER PRIMARY KEY)", self.urls[name])

    def ask(self, statement: str, url: str) -> list[Any]:
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def resource(self) -> TpcResource:
        return TpcResource(
            "driver",
            lambda: self.driver.connect(self.urls["driver"]),
            self.driver,
            unknown=lambda error: isinstance(error, self.unknown),
        )

    def manager(self, at: int = -1) -> TransactionManager:
        steps = itertools.count()

        def stop(_: str) -> None:
            if next(steps) == at:
                raise Stop

        return TransactionManager(
            self.folder / "tm",
            {"driver": self.resource(), "url": self.urls["url"]},
            orphan_interval=0.0,
            recovery_interval=None,
            on_step=stop,
        )

    def add(self, tm: TransactionManager, number: int, names: tuple[str, ...]) -> None:
        with tm.begin() as tx:
            for name in names:
                statement = f"INSERT INTO t VALUES ({number})"
                handle = tx[name]
                (handle if name == "url" else handle.cursor()).execute(statement)

    def rows(self) -> set[tuple[int, str]]:
        found = {name: self.ask("SELECT id FROM t", url) for name, url in self.urls.items()}
        return {(number, name) for name, rows in found.items() for (number,) in rows}


@pytest.fixture(params=list(DRIVERS))
def place(request: pytest.FixtureRequest, tmp_path: Path, postgres_server: Server) -> Place:
    return Place(tmp_path, postgres_server.url, request.param)


def test_branches_of_a_driver_commit_with_others_and_alone(place: Place) -> None:
    with place.manager() as tm:
        assert not tm.preflight()
        place.add(tm, 1, ("driver", "url"))
        place.add(tm, 2, ("driver",))
        with pytest.raises(KeyError), tm.begin() as tx:
            tx["driver"].cursor().execute("INSERT INTO t VALUES (3)")
            raise KeyError
        with pytest.raises(Exception, match="duplicate"):
            place.add(tm, 1, ("url", "driver"))
        assert tm.recover().clean
    assert place.rows() == {(1, "driver"), (1, "url"), (2, "driver")}


def test_a_stop_at_any_step_leaves_both_or_none(place: Place) -> None:
    """The resource has no outcome rows: a commit without an end record stays open, and is named."""
    both = {"driver", "url"}
    for at in itertools.count():
        stopped = False
        try:
            with place.manager(at) as tm:
                place.add(tm, at, ("driver", "url"))
        except Stop:
            stopped = True
        with place.manager() as tm:
            report = tm.recover()
            there = {name for number, name in place.rows() if number == at}
            assert there in (set(), both), f"stopped at step {at}: {report}"
            assert not report.clean or not tm.decisions.open_decisions()
            for gtrid, decision in tm.decisions.open_decisions().items():
                assert decision.resources == {"driver"}
                assert there == both
                settle(tm, gtrid)
        if not stopped:
            break
    assert at > 8
    assert there == both


def settle(tm: TransactionManager, gtrid: bytes) -> None:
    tm.decisions.finish(gtrid, ["driver"], DecisionOutcome.COMMITTED)


def test_a_branch_that_was_ended_by_another_is_found(place: Place) -> None:
    def end(step: str) -> None:
        if step == "before commit driver":
            query = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
            for (gid,) in place.ask(query, place.urls["driver"]):
                place.ask(f"ROLLBACK PREPARED '{gid}'", place.urls["driver"])

    with TransactionManager(
        place.folder / "tm",
        {"driver": place.resource(), "url": place.urls["url"]},
        recovery_interval=None,
        on_step=end,
    ) as tm:
        with pytest.raises(HeuristicError):
            place.add(tm, 1, ("driver", "url"))
        assert tm.decisions.heuristics()


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_handle_and_its_cursors_are_dead_after_their_transaction(place: Place, end: str) -> None:
    with place.manager() as tm:
        with tm.begin() as tx:
            handle: Any = tx.connection("driver", CONNECTIONS[place.driver])
            cursor = handle.cursor()
            cursor.execute("SELECT 1")
            getattr(tx, end)()
        late = "INSERT INTO t VALUES (9)"
        uses: list[Callable[[], object]] = [
            lambda: cursor.execute(late), lambda: handle.cursor().execute(late)
        ]  # fmt: skip
        for use in uses:
            with pytest.raises((TransactionUsageError, place.driver.InterfaceError)):
                use()
        with pytest.raises(TransactionUsageError, match="is over"):
            handle.info.dbname  # noqa: B018
        with tm.begin() as tx:  # over the same session
            tx["driver"].execute("INSERT INTO t VALUES (1)")
            for use in uses:
                with pytest.raises((TransactionUsageError, place.driver.InterfaceError)):
                    use()
    assert place.rows() == {(1, "driver")}


@pytest.mark.parametrize("call", ["commit", "rollback", "close", "tpc_commit", "tpc_rollback"])
def test_a_handle_cannot_end_its_branch_and_does_all_else(place: Place, call: str) -> None:
    with place.manager() as tm:
        with tm.begin() as tx:
            handle = tx["driver"]
            handle.execute("INSERT INTO t VALUES (%s)", (1,))
            with pytest.raises(TransactionUsageError):
                getattr(handle, call)()
            handle.cursor_factory = factory = handle.cursor_factory
            assert handle.cursor_factory is factory
            assert handle.info.dbname in place.urls["driver"]
        assert tm.recover().clean
    assert place.rows() == {(1, "driver")}
