"""What would fail on a bad day is found before, with the line to type; nothing is written."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from click.testing import CliRunner

from tallystick.cli.commands.indoubt import doctor_command as command
from tallystick.indoubt.doctor import Check, Level, examine
from tallystick.indoubt.doctor.databases import _clock, _tls
from tallystick.services.journal import Journal
from tallystick.services.transactions import TransactionManager
from tests.kit import untouched
from tests.servers import Server, make_postgres
from tests.services.transactions.test_commit import Crash


def found(checks: Any, level: Level | None = None) -> dict[tuple[str, str], Check]:
    return {(one.subject, one.what): one for one in checks if level in (None, one.level)}


def coordinator(folder: Path, resources: dict[str, Any], **settings: Any) -> TransactionManager:
    return TransactionManager(folder, resources, node="shop", recovery_interval=None, **settings)


@pytest.mark.postgres
@pytest.mark.mariadb
def test_all_is_well_with_a_coordinator_that_works(
    tmp_path: Path, postgres_server: Server, mariadb_server: Server
) -> None:
    urls = {
        "pg": postgres_server.url,
        "maria": mariadb_server.url,
        "lite": f"sqlite:///{tmp_path}/l",
    }
    with coordinator(tmp_path / "tm", urls) as tm:
        with tm.begin() as tx:
            for name in urls:
                tx[name].execute("SELECT 1")
        tm.recover()
        checks = found(examine(str(tmp_path / "tm"), urls))
    assert {one.level for one in checks.values()} == {Level.OK}, checks
    assert f"process {os.getpid()} works with it" in checks["shop", "directory"].found
    for name in ("pg", "maria"):
        assert "as noted" in checks[name, "identity"].found
        assert {"connection", "TLS", "role", "rights", "prepared", "durability", "clock"} <= {
            what for subject, what in checks if subject == name
        }
    with untouched(tmp_path):
        quiet = CliRunner().invoke(
            command, [str(tmp_path / "tm"), *(f"--resource={n}={u}" for n, u in urls.items())]
        )
    assert quiet.exit_code == 0, quiet.output
    assert "no process has it" in quiet.output
    assert all(line.startswith("ok") for line in quiet.output.splitlines())


@pytest.mark.postgres
def test_a_server_that_refuses_to_prepare_and_does_not_sync_is_found(tmp_path: Path) -> None:
    server = make_postgres(max_prepared_transactions="0", fsync="off")
    server.start()
    try:
        with psycopg.connect(server.url, autocommit=True) as pg:
            pg.execute("CREATE ROLE poor LOGIN")
            pg.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        coordinator(tmp_path / "tm", {}).close()
        poor = server.url.replace("tally@", "poor@")
        with untouched(tmp_path):
            problems = found(examine(str(tmp_path / "tm"), {"pg": poor}), Level.PROBLEM)
        assert "ALTER SYSTEM SET max_prepared_transactions = 200" in (
            problems["pg", "prepared"].type_next
        )
        assert "ALTER SYSTEM SET fsync = on" in problems["pg", "durability"].type_next
        assert problems["pg", "rights"].type_next == "GRANT CREATE ON SCHEMA public TO poor;"
        identity = found(examine(str(tmp_path / "tm"), {"pg": poor}), Level.WARNING)
        assert set(identity) <= {("pg", "identity")}
        with psycopg.connect(server.url) as pg:  # no table was made
            assert pg.execute("SELECT to_regclass('tallystick_outcomes')").fetchone() == (None,)
    finally:
        server.kill()
    gone = found(examine(str(tmp_path / "tm"), {"pg": server.url}), Level.PROBLEM)
    assert "start the server" in gone["pg", "connection"].type_next


@pytest.mark.mariadb
def test_a_server_that_loses_commits_and_a_user_without_rights_are_found(
    tmp_path: Path, mariadb_server: Server
) -> None:
    coordinator(tmp_path / "tm", {}).close()
    root = pymysql.connect(host="127.0.0.1", port=mariadb_server.port, user="root")
    cursor = root.cursor()
    try:
        cursor.execute("CREATE DATABASE doctor")
        cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        url = f"mariadb://root@127.0.0.1:{mariadb_server.port}"
        problems = found(
            examine(str(tmp_path / "tm"), {"maria": url, "there": f"{url}/doctor"}), Level.PROBLEM
        )
        assert set(problems) == {
            ("maria", "durability"), ("maria", "rights"), ("there", "durability"),
        }  # fmt: skip
        assert "SET GLOBAL innodb_flush_log_at_trx_commit = 1" in (
            problems["there", "durability"].type_next
        )
        assert "names no database" in problems["maria", "rights"].found
        cursor.execute("SELECT count(*) FROM information_schema.tables WHERE table_schema='doctor'")
        assert cursor.fetchone() == (0,)  # no table was made
    finally:
        cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        root.close()


@pytest.mark.postgres
def test_a_plain_connection_is_found_whose_machine_is_an_option_of_libpq(
    tmp_path: Path, postgres_server: Server
) -> None:
    coordinator(tmp_path / "tm", {}).close()
    options = f"host=db.example&hostaddr=127.0.0.1&port={postgres_server.port}"
    urls = {"pg": f"postgresql://tally@/postgres?{options}"}
    warnings = found(examine(str(tmp_path / "tm"), urls), Level.WARNING)
    assert "sslmode=verify-full" in warnings["pg", "TLS"].type_next


@pytest.mark.mariadb
def test_branches_with_ids_of_any_bytes_are_no_lack_of_rights(
    tmp_path: Path, mariadb_server: Server
) -> None:
    """Coordinators in Java make ids that are no text."""
    coordinator(tmp_path / "tm", {}).close()
    maria = pymysql.connect(host="127.0.0.1", port=mariadb_server.port, user="root")
    cursor = maria.cursor()
    foreign = "X'ff00fe80',X'c3',131077"
    for statement in ("XA START", "XA END", "XA PREPARE"):
        cursor.execute(f"{statement} {foreign}")
    try:
        resources = {"maria": mariadb_server.url}
        checks = found(examine(str(tmp_path / "tm"), resources))
        assert checks["maria", "prepared"].level is Level.OK, checks["maria", "prepared"]
        with coordinator(tmp_path / "tm", resources) as tm:
            assert not tm.preflight()
    finally:
        cursor.execute(f"XA ROLLBACK {foreign}")
        maria.close()


@pytest.mark.postgres
def test_another_database_under_the_name_is_found(tmp_path: Path, postgres_server: Server) -> None:
    with coordinator(tmp_path / "tm", {"pg": postgres_server.url}) as tm:
        tm.recover()
    with psycopg.connect(postgres_server.url, autocommit=True) as pg:
        pg.execute("CREATE DATABASE doctored")
    other = postgres_server.url.rpartition("/")[0] + "/doctored"
    problems = found(examine(str(tmp_path / "tm"), {"pg": other}), Level.PROBLEM)
    assert "another database" in problems["pg", "identity"].found


@pytest.mark.postgres
@pytest.mark.mariadb
def test_a_resource_that_was_renamed_is_named_with_what_waits_for_it(
    tmp_path: Path, postgres_server: Server, mariadb_server: Server
) -> None:
    def stop(step: str) -> None:
        if step == "after decision":
            raise Crash(step)

    urls = {"pg": postgres_server.url, "maria": mariadb_server.url}
    with coordinator(tmp_path / "tm", urls, on_step=stop) as tm:
        tm.recover()
        with pytest.raises(Crash), tm.begin() as tx:
            for name in urls:
                tx[name].execute("SELECT 1")
    renamed = {"pg": urls["pg"], "mysql": urls["maria"]}
    checks = found(examine(str(tmp_path / "tm"), renamed))
    said = [one.found for one in examine(str(tmp_path / "tm"), renamed) if one.what == "resources"]
    assert any("a decision waits for 'maria'" in one for one in said)
    assert any("'maria' was a resource" in one for one in said)
    assert "1 decisions are not closed" in checks["shop", "decision log"].found
    with coordinator(tmp_path / "tm", urls, orphan_interval=0.0) as tm:
        for _ in range(200):
            if tm.recover().clean:
                break
        assert tm.recover().clean


def test_what_is_no_coordinator_and_what_is_no_file_is_said(tmp_path: Path) -> None:
    with untouched(tmp_path):
        checks = examine(str(tmp_path), {"lite": f"sqlite:///{tmp_path}/nothing"})
    assert [one.level for one in checks] == [Level.PROBLEM, Level.PROBLEM]
    unsafe = tmp_path / "unsafe.db"
    sqlite3.connect(unsafe).execute("CREATE TABLE t (i)").connection.close()
    answer = CliRunner().invoke(
        command, [str(tmp_path), "--json", f"--resource=a=sqlite:///{unsafe}"]
    )
    assert answer.exit_code == 1
    assert {one["subject"] for one in json.loads(answer.output)} == {str(tmp_path), "a"}


def test_the_log_of_an_embedded_store_is_read(tmp_path: Path) -> None:
    with Journal(tmp_path / "mail") as mail:
        mail.append(b"one")
    coordinator(tmp_path / "tm", {}).close()
    places = {"mail": f"journal:{tmp_path}/mail", "gone": f"page-store:{tmp_path}/gone"}
    with untouched(tmp_path):
        checks = found(examine(str(tmp_path / "tm"), places))
    assert checks["mail", "store"].level is Level.OK
    assert checks["gone", "store"].level is Level.PROBLEM
    segment = max((tmp_path / "mail").glob("*"), key=lambda file: file.stat().st_size)
    content = bytearray(segment.read_bytes())
    place = content.index(b"one")
    content[place : place + 3] = b"two"
    segment.write_bytes(content)
    damaged = found(examine(str(tmp_path / "tm"), places))["mail", "store"]
    assert damaged.level is Level.PROBLEM
    assert damaged.type_next == f"tallystick verify {tmp_path}/mail"


def test_plain_connections_to_other_machines_and_wrong_clocks_are_warned_of() -> None:
    assert _tls("pg", "db.example", "sslmode", encrypted=False).level is Level.WARNING
    assert _tls("pg", "db.example", "sslmode", encrypted=True).level is Level.OK
    for here in ("localhost", "/var/run/postgresql", ""):
        assert _tls("pg", here, "sslmode", encrypted=False).level is Level.OK
    assert _clock("pg", 0).level is Level.WARNING


@pytest.mark.postgres
def test_the_extras_of_the_command_line_and_of_one_database_are_enough(
    tmp_path: Path, postgres_server: Server
) -> None:
    coordinator(tmp_path / "tm", {}).close()
    others = ("numpy", "pyarrow", "pyspark", "numba", "sqlalchemy", "pymysql", "opentelemetry")
    program = (
        f"import sys\nfor name in {others}: sys.modules[name] = None\n"
        "from tallystick.cli import main\n"
        f"main(['doctor', {str(tmp_path / 'tm')!r}, '--resource', 'pg={postgres_server.url}'])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "PostgreSQL" in answer.stdout
