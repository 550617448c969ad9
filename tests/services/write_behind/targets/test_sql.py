"""SQL targets: rows in tables, exactly once, whatever is sent twice."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from tallystick.errors import CorruptLogError, LogClosedError, TransactionUsageError
from tallystick.roles import Operation, OperationCode, PersistEntry
from tallystick.services.write_behind import TargetAheadError, TargetDownError, WriteBehind
from tallystick.services.write_behind.targets import sql
from tallystick.services.write_behind.targets.contact import Contacts
from tallystick.services.write_behind.targets.rows import decode_row, encode_row
from tallystick.services.write_behind.targets.sql import SqlTarget
from tallystick.services.write_behind.targets.statements import statements
from tallystick.storage.local import LOCAL
from tests.servers import Server
from tests.services.write_behind.kit import quick

DATABASES = [
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]


def engine_of(kind: str, request: pytest.FixtureRequest, path: Path) -> Engine:
    """An engine of an empty database of that kind."""
    if kind == "sqlite":
        return sa.create_engine(f"sqlite:///{path / 'target.db'}")
    server: Server = request.getfixturevalue(f"{kind}_server")
    driver = {"postgres": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}[kind]
    return sa.create_engine(server.url.replace(server.url.partition(":")[0], driver, 1))


@pytest.fixture(params=DATABASES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made = engine_of(request.param, request, tmp_path)
    with made.begin() as connection:
        for table in ("orders", "tallystick_applied"):
            connection.execute(sa.text(f"DROP TABLE IF EXISTS {table}"))
        connection.execute(
            sa.text(
                "CREATE TABLE orders (id INTEGER PRIMARY KEY, state VARCHAR(20), total INTEGER)"
            )
        )
    yield made
    made.dispose()


def row(code: OperationCode, key: int, **value: object) -> Operation:
    return Operation(code, "orders", encode_row({"id": key}), encode_row(value))


def entry(number: int, *operations: Operation) -> PersistEntry:
    return PersistEntry(number, ("db",), operations)


def table(engine: Engine) -> list[tuple[object, ...]]:
    with engine.connect() as connection:
        found = connection.execute(sa.text("SELECT id, state, total FROM orders ORDER BY id"))
        return [tuple(one) for one in found]


def applied(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        found = connection.execute(sa.text("SELECT number FROM tallystick_applied ORDER BY number"))
        return [one for one in found.scalars() if one >= 0]  # the others are tokens


def open_target(engine: Engine, **values: object) -> SqlTarget:
    target = SqlTarget(engine, **values)  # type: ignore[arg-type]
    target.open("log-1")
    return target


def test_rows_are_inserted_updated_and_deleted_in_order(engine: Engine) -> None:
    target = open_target(engine)
    target.apply(
        [
            entry(1, row(OperationCode.INSERT, 1, state="new", total=5)),
            entry(2, row(OperationCode.UPDATE, 1, state="paid")),
            entry(3, row(OperationCode.UPDATE, 2, state="grün", total=None)),
            entry(4, row(OperationCode.INSERT, 3), row(OperationCode.DELETE, 3)),
        ]
    )
    assert table(engine) == [(1, "paid", 5), (2, "grün", None)]
    assert applied(engine) == [1, 2, 3, 4]


def test_entry_sent_twice_takes_effect_once(engine: Engine) -> None:
    first, second = entry(1, row(OperationCode.INSERT, 1, total=1)), entry(2)
    open_target(engine).apply([first])
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE orders SET total = 7"))
    open_target(engine).apply([first, second])
    assert table(engine) == [(1, None, 7)]
    assert applied(engine) == [1, 2]


def test_commit_that_took_place_but_reported_failure_is_not_repeated(engine: Engine) -> None:
    target = open_target(engine)
    target.apply([entry(1)])

    def lose_answer(connection: sa.Connection) -> None:
        sa.event.remove(engine, "commit", lose_answer)
        connection.connection.driver_connection.commit()  # type: ignore[union-attr]
        raise sa.exc.OperationalError("COMMIT", {}, ConnectionError("gone"), True)

    sa.event.listen(engine, "commit", lose_answer)
    batch = [entry(2, row(OperationCode.INSERT, 1, total=1)), entry(3)]
    with pytest.raises(TargetDownError):
        target.apply(batch)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE orders SET total = 7"))
    target.apply(batch)
    assert table(engine) == [(1, None, 7)]
    assert applied(engine) == [1, 2, 3]


def test_failing_batch_leaves_nothing_behind(engine: Engine) -> None:
    target = open_target(engine)
    bad = Operation(OperationCode.INSERT, "no_such_table", b'{"id":1}', b"{}")
    with pytest.raises(sa.exc.DBAPIError):
        target.apply([entry(1, row(OperationCode.INSERT, 1)), entry(2, bad)])
    assert table(engine) == []
    assert applied(engine) == []


def test_settled_numbers_are_forgotten_and_those_of_other_logs_kept(engine: Engine) -> None:
    target, other = open_target(engine), SqlTarget(engine)
    other.open("log-2")
    target.apply([entry(1), entry(2), entry(3)])
    other.apply([entry(1)])
    target.settled(3)
    assert applied(engine) == [1, 3]


def test_function_of_the_application_runs_in_the_same_transaction(engine: Engine) -> None:
    def insert(connection: sa.Connection, one: PersistEntry) -> None:
        connection.execute(sa.text("INSERT INTO orders (id) VALUES (:id)"), {"id": one.number})
        if one.number == 2:
            raise ValueError("not this one")

    target = open_target(engine, apply=insert)
    target.apply([entry(1)])
    with pytest.raises(ValueError, match="not this one"):
        target.apply([entry(2)])
    assert table(engine) == [(1, None, None)]
    assert applied(engine) == [1]


def test_without_the_table_nothing_is_kept(engine: Engine) -> None:
    target = open_target(engine, applied_table=None)
    for _ in range(2):
        target.apply([entry(1, row(OperationCode.INSERT, 1, total=2))])
    target.settled(9)
    assert table(engine) == [(1, None, 2)]
    assert not sa.inspect(engine).has_table("tallystick_applied")


def test_service_fills_tables_and_survives_a_bad_row(engine: Engine, tmp_path: Path) -> None:
    settings = quick(attempts_max=2)
    with WriteBehind(
        tmp_path / "spool", {"db": engine}, system="cloudtran", settings=settings
    ) as behind:
        for number in range(20):
            with behind.begin(f"order-{number}") as tx:
                tx.insert("orders", {"id": number}, {"state": "new", "total": number})
                if number == 7:
                    tx.update("orders", {"id": number}, {"no_such_column": 1})
        while behind.statistics.set_aside == 0 or behind.backlog.count > 1:
            assert not behind.drain(0.01)
        (status,) = behind.pending()
        assert status.reference == "order-7"
        behind.discard(status.number)
    assert [one[0] for one in table(engine)] == [n for n in range(20) if n != 7]


def put_order(behind: WriteBehind, number: int, state: str) -> None:
    with behind.begin() as tx:
        tx.insert("orders", {"id": number}, {"state": state})


def stops(behind: WriteBehind) -> None:
    """Check that a service refuses commits, now or soon, and that what it has is not applied."""
    with pytest.raises(LogClosedError, match="TargetAheadError"):
        while True:
            put_order(behind, 100, "never")
            behind.drain(0.01)
    assert behind.pending()
    behind.close(0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("of", ["the log as it is", "an older state"])
def test_of_two_services_on_copies_of_a_log_one_stops_and_nothing_is_skipped(
    engine: Engine, tmp_path: Path, of: str
) -> None:
    with WriteBehind(tmp_path / "log", {"db": engine}) as behind:
        put_order(behind, 0, "before")
        assert behind.drain(60)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    first = WriteBehind(tmp_path / "log", {"db": engine}, settings=quick())
    if of == "an older state":
        put_order(first, 1, "first")
        assert first.drain(60)
    second = WriteBehind(tmp_path / "copy", {"db": engine}, settings=quick())
    if of == "an older state":
        stops(second)
        put_order(first, 2, "first")
        assert first.drain(60)
        first.close()
        assert [one[:2] for one in table(engine)] == [(0, "before"), (1, "first"), (2, "first")]
    else:
        put_order(second, 1, "second")
        assert second.drain(60)
        stops(first)
        second.close()
        assert [one[:2] for one in table(engine)] == [(0, "before"), (1, "second")]


def closed(service: WriteBehind) -> None:
    assert service.drain(60)
    service.close()


def refused(folder: Path, targets: Mapping[str, object], number: int) -> None:
    """Open a service as one that is started again and again: only the first one takes commits."""
    behind = WriteBehind(folder, targets, on_incomplete="replay", settings=quick())
    with suppress(LogClosedError):
        put_order(behind, number, "acknowledged")
    stops(behind)
    for _ in range(3):
        with pytest.raises(TargetAheadError):
            WriteBehind(folder, targets, on_incomplete="replay", settings=quick())
    with WriteBehind(folder, targets, on_incomplete="hold", settings=quick()) as held:
        before = held.pending()
        assert before, "an operator can look"
        for _ in range(2):
            with pytest.raises(TargetAheadError):
                held.replay()
        assert held.pending() == before


def test_an_older_state_of_a_log_never_grows_until_its_numbers_pass_for_applied(
    engine: Engine, tmp_path: Path
) -> None:
    first = WriteBehind(tmp_path / "log", {"db": engine})
    put_order(first, 0, "before")
    assert first.drain(60)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")  # the token is that of this opening
    for number in range(1, 4):
        put_order(first, number, "before")
    closed(first)
    refused(tmp_path / "copy", {"db": engine}, 10)
    assert len(table(engine)) == 4


def test_nor_does_it_while_the_database_is_down(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)"))
    first = WriteBehind(tmp_path / "log", {"db": engine})
    put_order(first, 0, "before")
    assert first.drain(60)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    for number in range(1, 4):
        put_order(first, number, "before")
    closed(first)
    down = {"db": sa.create_engine(f"sqlite:///{tmp_path}/no/folder.db")}
    for number in range(10, 16):
        with WriteBehind(
            tmp_path / "copy", down, on_incomplete="replay", settings=quick(close_timeout=0)
        ) as behind:
            put_order(behind, number, "acknowledged")
    behind = WriteBehind(
        tmp_path / "copy", {"db": engine}, on_incomplete="replay", settings=quick()
    )
    stops(behind)
    engine.dispose()


@pytest.mark.parametrize("before", ["the first contact", "the last opening", "all: it is new"])
def test_a_database_that_was_restored_is_not_taken_for_that_of_the_log(
    before: str, tmp_path: Path
) -> None:
    path, backup = tmp_path / "target.db", tmp_path / "backup.db"
    targets = {"db": sa.create_engine(f"sqlite:///{path}")}
    with contextlib.closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)")
        made.execute("CREATE TABLE tallystick_applied (log VARCHAR(36), number BIGINT)")
        made.execute("INSERT INTO tallystick_applied VALUES ('another log', -7)")
        made.commit()
    if before == "the first contact":
        shutil.copy(path, backup)
    for number in range(3):
        behind = WriteBehind(tmp_path / "log", targets)
        put_order(behind, number, "applied")
        closed(behind)
        if number == 1 and before == "the last opening":
            shutil.copy(path, backup)
    targets["db"].dispose()
    path.unlink()
    if backup.exists():
        shutil.copy(backup, path)
    else:
        with contextlib.closing(sqlite3.connect(path)) as made:
            made.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)")
    refused(tmp_path / "log", targets, 3)
    (tmp_path / "log" / "targets").unlink()  # as the error says, by one who knows what is missing
    with WriteBehind(tmp_path / "log", targets, on_incomplete="replay") as behind:
        closed(behind)
    with contextlib.closing(sqlite3.connect(path)) as found:
        states = found.execute("SELECT state FROM orders WHERE id = 3").fetchall()
    assert states == [("acknowledged",)]


def shop_file(path: Path) -> dict[str, Engine]:
    with contextlib.closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)")
    return {"db": sa.create_engine(f"sqlite:///{path}")}


@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_nor_is_a_backup_of_the_opening_that_was_the_last(
    ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "NOTED_EACH_S", 0.0 if ended == "killed" else 3_600.0)
    path, backup, folder = tmp_path / "target.db", tmp_path / "backup.db", tmp_path / "log"
    targets = shop_file(path)
    with WriteBehind(folder, targets) as behind:
        put_order(behind, 0, "applied")
        assert behind.drain(60)
        shutil.copy(path, backup)
        put_order(behind, 1, "applied")
        assert behind.drain(60)
        if ended == "killed":
            behind._log.sync().wait()  # its marks: without them all comes again
            shutil.copytree(folder, tmp_path / "killed")
    targets["db"].dispose()
    shutil.copy(backup, path)
    refused(tmp_path / "killed" if ended == "killed" else folder, targets, 2)


@pytest.mark.parametrize("settled", [False, True])
def test_nor_is_one_that_takes_its_place_while_the_service_works(
    tmp_path: Path, settled: bool
) -> None:
    """As a standby does that lagged behind the primary: what it lacks was acknowledged."""
    path, standby, folder = tmp_path / "target.db", tmp_path / "standby.db", tmp_path / "log"
    targets = shop_file(path)
    behind = WriteBehind(folder, targets, settings=quick())
    for number in range(3):
        if number == 2:
            shutil.copy(path, standby)
        put_order(behind, number, "applied")
        assert behind.drain(60)
        if settled and number == 1:
            behind._workers["db"].target.settled(behind._log.last_number)
    targets["db"].dispose()
    standby.rename(path)
    stops(behind)
    with pytest.raises(TargetAheadError, match="lacks transactions"):
        WriteBehind(folder, targets, on_incomplete="replay", settings=quick())


def test_numbers_that_may_be_forgotten_are_not_looked_for_on_new_connections(
    tmp_path: Path,
) -> None:
    engine = shop_file(tmp_path / "target.db")["db"]
    target = SqlTarget(engine)
    target.known(Contacts(str(tmp_path / "targets"), LOCAL).opened("db", 0, lambda _: False))
    target.open("log-1")
    with ThreadPoolExecutor(1) as another:  # its last number is 1
        another.submit(target.apply, [entry(1, row(OperationCode.INSERT, 1, state="x"))]).result()
    for number in (2, 3):
        target.apply([entry(number, row(OperationCode.INSERT, number, state="x"))])
        target.settled(number)
        engine.dispose()
    assert applied(engine) == [3]


def test_what_a_target_gets_again_it_need_not_hold(tmp_path: Path) -> None:
    targets, folder = shop_file(tmp_path / "target.db"), tmp_path / "log"
    with WriteBehind(folder, targets) as behind:
        put_order(behind, 0, "applied")
        assert behind.drain(60)
    away = {"db": sa.create_engine(f"sqlite:///{tmp_path}/no/folder.db")}
    with WriteBehind(folder, away, settings=quick(close_timeout=0)) as behind:
        put_order(behind, 1, "its mark was lost in a crash")
        (waiting,) = behind.pending()
    known = json.loads((folder / "targets").read_text())
    assert known["db"]["applied"] == waiting.number - 1
    known["db"]["applied"] = waiting.number
    (folder / "targets").write_text(json.dumps(known))
    with WriteBehind(folder, targets, on_incomplete="replay") as behind:
        closed(behind)
    assert rows(targets["db"], "SELECT count(*) FROM orders") == [(2,)]
    assert json.loads((folder / "targets").read_text())["db"]["applied"] == waiting.number


def test_a_refused_target_that_is_away_is_no_reason_to_take_commits(tmp_path: Path) -> None:
    path = tmp_path / "target.db"
    targets = {"db": sa.create_engine(f"sqlite:///{path}")}
    with contextlib.closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)")
    for _ in range(2):
        closed(WriteBehind(tmp_path / "log", targets))
    with WriteBehind(tmp_path / "log", targets) as behind:
        put_order(behind, 1, "applied")
        assert behind.drain(60)
    right = path.read_bytes()
    with contextlib.closing(sqlite3.connect(path)) as changed:
        changed.execute("UPDATE tallystick_applied SET number = -5 WHERE number < 0")
        changed.commit()
    refused(tmp_path / "log", targets, 2)
    targets["db"].dispose()
    path.rename(tmp_path / "away.db")
    path.mkdir()
    with pytest.raises(TargetAheadError, match="cannot be asked again"):
        WriteBehind(tmp_path / "log", targets, on_incomplete="replay")
    path.rmdir()
    path.write_bytes(right)
    with WriteBehind(tmp_path / "log", targets, on_incomplete="replay") as behind:
        closed(behind)
    with WriteBehind(tmp_path / "log", targets) as behind:
        put_order(behind, 5, "applied")
        assert behind.drain(60)


def test_tokens_of_two_openings_at_once_leave_at_most_one_at_work(engine: Engine) -> None:
    one, other = SqlTarget(engine), SqlTarget(engine)
    for target in (one, other):
        target.open("log-1")
        target.apply([])
    with engine.begin() as connection:  # as if the other had not seen it
        connection.execute(
            sa.text("INSERT INTO tallystick_applied VALUES ('log-1', :number)"),
            {"number": one._token},
        )
    last = SqlTarget(engine)
    last.open("log-1")
    last.apply([entry(1)])
    for target in (one, other):
        with pytest.raises(TargetAheadError):
            target.apply([entry(2)])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"db": {}}', b'{"db": {"since": 1}}'])
def test_a_damaged_file_of_targets_is_refused(tmp_path: Path, content: bytes) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    WriteBehind(tmp_path / "log", {"db": engine}).close()
    (tmp_path / "log/targets").write_bytes(content)
    with pytest.raises(CorruptLogError, match="what the service knows of its targets is damaged"):
        WriteBehind(tmp_path / "log", {"db": engine})


@pytest.mark.long
@pytest.mark.parametrize("kind", DATABASES[1:])
def test_killed_server_counts_as_down_and_catches_up(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    engine = engine_of(kind, request, tmp_path)
    server: Server = request.getfixturevalue(f"{kind}_server")
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS tallystick_applied"))
        connection.execute(sa.text("DROP TABLE IF EXISTS orders"))
        connection.execute(sa.text("CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER)"))
    settings = quick(retry_seconds_max=0.2)
    with WriteBehind(
        tmp_path / "spool", {"db": engine}, system="cloudtran", settings=settings
    ) as behind:
        for number in range(300):
            if number == 100:
                server.kill()
            with behind.begin() as tx:
                tx.insert("orders", {"id": number}, {"total": number})
        while behind.statistics.retries < 2:
            assert not behind.drain(0.01)
        server.start()
        assert behind.drain(60)
        assert behind.statistics.set_aside == 0
    with engine.connect() as connection:
        found = connection.execute(sa.text("SELECT id FROM orders ORDER BY id")).scalars()
        assert list(found) == list(range(300))
    engine.dispose()


def test_database_that_cannot_be_opened_is_down(tmp_path: Path) -> None:
    target = open_target(sa.create_engine(f"sqlite:///{tmp_path / 'no' / 'folder.db'}"))
    with pytest.raises(TargetDownError):
        target.apply([entry(1)])


def test_same_row_gives_the_same_bytes() -> None:
    assert encode_row({"b": 1, "a": "ä"}) == encode_row({"a": "ä", "b": 1})
    assert decode_row(encode_row({"a": None})) == {"a": None}
    assert encode_row(b"raw") == b"raw"
    assert decode_row(b' {"a": 1}\n') == {"a": 1}
    odd = {"z": 'q"\\\u2028ü', "a": [1, 2.5, None, True], "n": {"b": 1e300, "a": -1}, "": ""}
    plain = json.dumps(odd, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert encode_row(odd) == plain.encode()
    with pytest.raises(ValueError, match="JSON object"):
        decode_row(b"[1]")
    for wrong in (b"", b"{", b'{"a":1} {"b":2}', b'{"a":1},', b"\xff"):
        with pytest.raises(ValueError, match=r"."):
            decode_row(wrong)
    with pytest.raises(TransactionUsageError, match="has no encoding"):
        encode_row({"a": object()})


# -- PostgreSQL: rows as one document ----------------------------------------------------


@pytest.fixture
def postgres(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made = engine_of("postgres", request, tmp_path)
    with made.begin() as connection:
        for statement in (
            "DROP TABLE IF EXISTS tallystick_applied, plain, rich",
            "CREATE SCHEMA IF NOT EXISTS shop",
            'DROP TABLE IF EXISTS shop."Odd name"',
            "CREATE TABLE plain (id BIGINT PRIMARY KEY, t TEXT, n NUMERIC, f FLOAT)",
            "ALTER TABLE plain ADD b BOOLEAN, ADD d TIMESTAMPTZ, ADD u UUID, ADD x BYTEA",
            "CREATE TABLE rich (id BIGINT PRIMARY KEY, j JSONB, a INT[])",
            'CREATE TABLE shop."Odd name" ("Key" TEXT PRIMARY KEY, "a ""b" TEXT)',
        ):
            connection.execute(sa.text(statement))
    yield made
    made.dispose()


def upsert(table: str, key: dict[str, object], value: dict[str, object]) -> Operation:
    return Operation(OperationCode.UPDATE, table, encode_row(key), encode_row(value))


def rows(engine: Engine, query: str) -> list[tuple[object, ...]]:
    with engine.connect() as connection:
        return [tuple(one) for one in connection.execute(sa.text(query))]


@pytest.mark.postgres
def test_document_of_rows_writes_what_single_rows_write(postgres: Engine) -> None:
    value = {
        "t": "grün \u2028 '\"\\", "n": 12.50, "f": 1e300, "b": True, "d": "2026-01-02T03:04:05Z",
        "u": "6f1ed002-ab5a-4d5b-8f1e-000000000001", "x": "\\x00ff",
    }  # fmt: skip
    nothing: dict[str, object] = dict.fromkeys(value)
    operations = [
        upsert("plain", {"id": 1}, value),
        upsert("plain", {"id": 2}, nothing),
        upsert("plain", {"id": 2}, {"t": "again"}),
        upsert("plain", {"id": 9_007_199_254_740_993}, value),
    ]
    target = open_target(postgres)
    target.apply([entry(number, one) for number, one in enumerate(operations, 1)])
    at_once = rows(postgres, "SELECT * FROM plain ORDER BY id")
    assert len(at_once) == 3
    with postgres.begin() as connection:
        connection.execute(sa.text("DELETE FROM plain"))
        for statement, parameters in statements("postgresql", operations):
            connection.execute(statement, parameters)
    assert rows(postgres, "SELECT * FROM plain ORDER BY id") == at_once


@pytest.mark.postgres
def test_tables_with_json_or_array_columns_get_single_rows(postgres: Engine) -> None:
    target = open_target(postgres)
    target.apply([entry(1, upsert("rich", {"id": 1}, {"j": '{"a": [1]}', "a": "{1,2}"}))])
    assert rows(postgres, "SELECT * FROM rich") == [(1, {"a": [1]}, [1, 2])]


@pytest.mark.postgres
def test_one_key_many_times_in_a_batch_and_odd_names(postgres: Engine) -> None:
    target = open_target(postgres)
    table = "shop.Odd name"
    updates = [upsert(table, {"Key": "k"}, {'a "b': str(number)}) for number in range(50)]
    spaced = Operation(OperationCode.UPDATE, table, b'{"Key": "k" }', encode_row({'a "b': "last"}))
    twice = upsert(table, {"Key": "z"}, {"Key": "z", 'a "b': "1"})
    batch = [entry(number, one) for number, one in enumerate([*updates, spaced, twice], 1)]
    target.apply(batch)
    assert rows(postgres, 'SELECT * FROM shop."Odd name" ORDER BY 1') == [("k", "last"), ("z", "1")]
    gone = Operation(OperationCode.DELETE, table, encode_row({"Key": "k"}))
    target.apply([entry(100, gone), entry(101, gone)])
    assert rows(postgres, 'SELECT * FROM shop."Odd name"') == [("z", "1")]
    assert len(applied(postgres)) == 54


@pytest.mark.postgres
def test_one_key_in_several_types_keeps_the_last_value(postgres: Engine) -> None:
    keys: list[object] = [7, "7", 7.0, " 7", 7]
    target = open_target(postgres)
    batch = [upsert("plain", {"id": key}, {"t": str(place)}) for place, key in enumerate(keys)]
    target.apply([entry(number, one) for number, one in enumerate(batch, 1)])
    assert rows(postgres, "SELECT id, t FROM plain") == [(7, "4")]


@pytest.mark.postgres
def test_failing_row_is_found_by_itself_and_leaves_nothing(postgres: Engine) -> None:
    target = open_target(postgres)
    good = entry(1, upsert("plain", {"id": 1}, {"t": "x"}))
    bad = entry(2, upsert("plain", {"id": 2}, {"u": "no uuid"}))
    with pytest.raises(sa.exc.DataError):
        target.apply([good, bad])
    assert applied(postgres) == []
    target.apply([good])
    assert applied(postgres) == [1]


@pytest.mark.postgres
@pytest.mark.parametrize("code", ["insert", "update"])
def test_a_text_with_nul_is_set_aside_and_what_came_later_is_applied(
    postgres: Engine, tmp_path: Path, code: str
) -> None:
    settings = quick(attempts_max=2)
    with WriteBehind(tmp_path / "spool", {"db": postgres}, settings=settings) as behind:
        for number, text in enumerate(["a", "b\0", "c"]):
            with behind.begin(f"row-{number}") as tx:
                getattr(tx, code)("plain", {"id": number}, {"t": text})
        while behind.statistics.set_aside == 0 or behind.backlog.count > 1:
            assert not behind.drain(0.01)
        (status,) = behind.pending()
        assert status.reference == "row-1"
        behind.discard(status.number)
    assert rows(postgres, "SELECT id, t FROM plain ORDER BY id") == [(0, "a"), (2, "c")]


def test_pool_without_a_free_connection_is_down(tmp_path: Path) -> None:
    engine = sa.create_engine(
        f"sqlite:///{tmp_path / 'a.db'}", poolclass=sa.QueuePool, pool_size=1, max_overflow=0,
        pool_timeout=0.01,
    )  # fmt: skip
    target = open_target(engine)
    with engine.connect(), pytest.raises(TargetDownError):
        target.apply([entry(1)])
    target.apply([entry(1)])
    engine.dispose()


def test_sqlalchemy_object_that_is_not_an_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="create_engine"):
        WriteBehind(tmp_path / "spool", {"db": sa.MetaData()})


def test_a_target_that_is_asked_without_entries_says_what_is_wrong(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'target.db'}")
    target = open_target(engine)
    target.apply([])
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM tallystick_applied"))
    with pytest.raises(TargetAheadError, match="another service"):
        target.apply([])
    engine.dispose()
