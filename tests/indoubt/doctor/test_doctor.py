"""What would fail on a bad day is found before, with the line to type; nothing is written."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from click.testing import CliRunner

from tallystick.cli.watch import backlog
from tallystick.cli.watch.doctor import command
from tallystick.errors import CorruptLogError, TallystickError, UnsupportedFormatError
from tallystick.indoubt.doctor import (
    Check,
    Level,
    branches,
    directory,
    examine,
    service,
    volumes,
)
from tallystick.indoubt.doctor.databases import _clock, _tls
from tallystick.reconcile.gid import format_gid
from tallystick.records import Xid
from tallystick.services.journal import Journal
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.xids import XidFactory
from tallystick.services.write_behind import WriteBehind, WriteBehindSettings
from tallystick.systems.registry import open_decision_log
from tests.disposal.kit import until
from tests.kit import untouched
from tests.servers import START_SECONDS, Server, make_postgres, make_standby, running
from tests.services.transactions.test_commit import Crash


def found(checks: Any, level: Level | None = None) -> dict[tuple[str, str], Check]:
    return {(one.subject, one.what): one for one in checks if level in (None, one.level)}


def coordinator(folder: Path, resources: dict[str, Any], **settings: Any) -> TransactionManager:
    return TransactionManager(folder, resources, node="shop", recovery_interval=None, **settings)


@pytest.fixture(autouse=True)
def a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all folders on a disk, whatever the machine of the tests has below them."""
    mounts(tmp_path, monkeypatch, {"/": "ext4"})


def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted: dict[str, str]) -> None:
    table = tmp_path.parent / f"{tmp_path.name}.mounts"
    lines = [
        f"{number} 1 8:{number} / {point.replace(' ', chr(92) + '040')} rw - {kind} none rw"
        for number, (point, kind) in enumerate(mounted.items())
    ]
    table.write_text("\n".join(lines))
    monkeypatch.setattr(volumes, "MOUNTS", table)


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
    assert f"process {os.getpid()} (" in checks["shop", "directory"].found
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
    assert all(line.startswith(("ok ", "   ")) for line in quiet.output.splitlines())


@pytest.mark.postgres
def test_a_server_that_refuses_to_prepare_and_does_not_sync_is_found(tmp_path: Path) -> None:
    with running(make_postgres(max_prepared_transactions="0", fsync="off")) as server:
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
    assert "1 decision not closed" in checks["shop", "decision log"].found
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


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("node", bytes(14)),
        ("node", b""),
        ("identities.json", b"{ junk"),
        ("identities.json", b"[1]"),
        ("lost-before", b"soon"),
        ("lost-before", b"1" * 5000),
    ],
)
def test_a_small_file_with_which_the_manager_refuses_to_open_is_a_problem(
    file: str, content: bytes, tmp_path: Path
) -> None:
    TransactionManager(tmp_path, {}).close()
    assert not _problems(tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(TallystickError):
        TransactionManager(tmp_path, {}).close()
    with untouched(tmp_path):
        (problem,) = _problems(tmp_path)
    assert problem.what == file
    _type(problem)
    assert not _problems(tmp_path)
    TransactionManager(tmp_path, {}).close()


def _type(problem: Check) -> None:
    subprocess.run(["bash", "-c", problem.type_next], check=True)


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("system", ["tally", "bitronix"])
def test_a_lost_node_is_written_anew_by_the_line_that_is_named(
    system: str, decided: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "it's a \t folder"
    log = None if system == "tally" else open_decision_log(folder / "decisions", system)
    with TransactionManager(folder, {}, node="shop no. 1", log=log) as tm:
        if decided:
            tm.decisions.decide(XidFactory("shop no. 1").gtrid(), ["gone"]).wait()
    node = (folder / "node").read_bytes()
    (folder / "node").unlink()
    with untouched(folder):
        (problem,) = _problems(folder)
    assert problem.what == "node"
    if system == "tally" or decided:
        _type(problem)
        assert (folder / "node").read_bytes() == node
    else:
        assert "printf '%s\\n' NODE > " in problem.type_next


@pytest.mark.parametrize("content", [None, b"", b"three words here\n"])
@pytest.mark.parametrize("system", ["tally", "cloudtran"])
def test_a_lost_identity_is_written_anew_by_the_line_that_is_named(
    system: str, content: bytes | None, tmp_path: Path
) -> None:
    folder = tmp_path / "spool of ours"
    with WriteBehind(folder, {"shop": lambda _: None}, system=system) as behind:
        with behind.begin() as tx:
            tx.insert("orders", {"id": 1}, {})
        assert behind.drain(60)
    assert not _problems(folder)
    file = folder / "identity"
    identity = file.read_bytes()
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(CorruptLogError, match="identity of the service is"):
        WriteBehind(folder, {"shop": lambda _: None}, system=system)
    with untouched(folder):
        (problem,) = _problems(folder)
    assert problem.what == "identity"
    if system == "tally":
        _type(problem)
        assert file.read_bytes() == identity
    else:
        assert f"printf '%s\\n' ID cloudtran > '{file}'" in problem.type_next
        assert "SELECT DISTINCT log FROM tallystick_applied" in problem.type_next
        file.write_bytes(identity)
    WriteBehind(folder, {"shop": lambda _: None}, system=system).close()


@pytest.mark.parametrize("left", [True, False], ids=["empty", "missing"])
def test_a_coordinator_without_its_decisions_is_a_problem(left: bool, tmp_path: Path) -> None:
    TransactionManager(tmp_path, {}).close()
    shutil.rmtree(tmp_path / "decisions")
    if left:
        (tmp_path / "decisions").mkdir()
    with pytest.raises(CorruptLogError, match="decisions of this coordinator are missing"):
        TransactionManager(tmp_path, {}).close()
    assert [one.what for one in _problems(tmp_path)] == ["decision log"]
    assert CliRunner().invoke(command, [str(tmp_path)]).exit_code == 1


def test_an_archive_that_refuses_a_file_is_a_problem_of_its_service(tmp_path: Path) -> None:
    refused = threading.Event()

    def refuse(path: str) -> None:
        refused.set()
        raise FileExistsError(f"another file has the name of {path}")

    settings = WriteBehindSettings(target_duty=1.0)
    with WriteBehind(
        tmp_path, {"shop": lambda _entry: None}, disposer=refuse, settings=settings
    ) as behind:
        assert not _problems(tmp_path)
        row = {"v": "x" * 8000}
        while not refused.is_set():
            with behind.begin() as tx:
                for number in range(500):
                    tx.insert("orders", {"id": number}, row)
            behind.drain(timeout=60)
        until(lambda: bool(_problems(tmp_path)))
    with untouched(tmp_path):
        (problem,) = _problems(tmp_path)
    assert (problem.what, "another file has the name" in problem.found) == ("disposal", True)
    assert CliRunner().invoke(command, [str(tmp_path)]).exit_code == 1


@pytest.mark.parametrize("content", [None, b"", b"junk" * 4096], ids=["gone", "empty", "junk"])
def test_a_service_whose_log_does_not_open_is_a_problem(
    content: bytes | None, tmp_path: Path
) -> None:
    WriteBehind(tmp_path, {"shop": lambda _: None}).close()
    assert not _problems(tmp_path)
    for file in (tmp_path / "log").glob("0*.tally" if content is None else "*.tally"):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
    with pytest.raises(TallystickError):
        WriteBehind(tmp_path, {"shop": lambda _: None}).close()
    with untouched(tmp_path):
        assert [one.what for one in _problems(tmp_path)] == ["log"]
        assert CliRunner().invoke(backlog.command, [str(tmp_path)]).exit_code == 1


@pytest.mark.parametrize("other", ["journal", "service"])
def test_decisions_that_are_the_log_of_another_service_are_a_problem(
    other: str, tmp_path: Path
) -> None:
    TransactionManager(tmp_path / "tm", {}).close()
    log = tmp_path / "tm" / "decisions"
    shutil.rmtree(log)
    if other == "journal":
        Journal(log).close()
    else:
        WriteBehind(tmp_path / "spool", {"shop": lambda _: None}).close()
        shutil.move(tmp_path / "spool" / "log", log)
    with pytest.raises(UnsupportedFormatError):
        TransactionManager(tmp_path / "tm", {})
    (problem,) = _problems(tmp_path / "tm")
    assert (problem.what, "holds another log" in problem.found) == ("decision log", True)


def test_what_may_not_be_read_keeps_nothing_else_from_being_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TransactionManager(tmp_path / "tm", {}).close()
    WriteBehind(tmp_path / "spool", {"shop": lambda _: None}).close()

    def refuse(path: object, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)
    monkeypatch.setattr(directory, "is_vacant", refuse)
    found = {one.what: one for one in _problems(tmp_path / "tm")}
    monkeypatch.setattr(service, "recorded_system", refuse)
    found |= {one.what: one for one in _problems(tmp_path / "spool")}
    assert found.keys() == {"node", "decision log", "identity"}
    for one in found.values():
        assert one.type_next.startswith("ls -l")
        assert "Permission denied" in one.found
    monkeypatch.setattr(service, "holds_no_log", refuse)
    assert [one.what for one in _problems(tmp_path / "spool")] == ["log"]


def test_a_path_with_blanks_is_one_word_of_each_line_that_is_to_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "it is a folder"
    mounts(tmp_path, monkeypatch, {"/": "tmpfs"})
    monkeypatch.setattr(directory, "_FREE_WARNING", 1 << 62)
    monkeypatch.setattr(os, "access", lambda *_: False)
    TransactionManager(folder, {"my lite": f"sqlite:///{tmp_path}/l"}).close()
    stores = {"j": f"journal:{folder}/no journal", "l": f"sqlite:///{folder}/node"}
    lines = [one.type_next for one in examine(str(folder), stores) if one.type_next]
    shutil.rmtree(folder / "decisions")
    lines += [one.type_next for one in examine(str(folder), {}) if one.what == "decision log"]
    assert len(lines) >= 6
    for line in lines:
        assert any(word.startswith(str(folder)) for word in shlex.split(line, comments=True)), line


def _problems(folder: Path) -> list[Check]:
    return [one for one in examine(str(folder), {}) if one.level is Level.PROBLEM]


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


def doctor(folder: Path, resources: dict[str, str]) -> list[str]:
    """The lines that the command prints about a coordinator; all fit in 80 columns."""
    urls = [f"--resource={name}={url}" for name, url in resources.items()]
    lines = CliRunner().invoke(command, [str(folder), *urls]).output.splitlines()
    too_long = [line for line in lines if len(line) > 80 and " " in line.strip()]
    assert not too_long
    return lines


def on_a_disk_of(kibibytes: int, folder: Path, script: str, **options: int) -> str:
    """What a script prints while ``folder`` is a small file system, for its process alone."""
    mount = ",".join([f"size={kibibytes}k", *(f"{key}={value}" for key, value in options.items())])
    names = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    shell = (
        f"mount -t tmpfs -o {mount} tmpfs {folder} || exit 77; exec {sys.executable} -c '{script}'"
    )
    answer = subprocess.run(
        ["unshare", *names, "sh", "-c", shell], capture_output=True, text=True, check=False,
        cwd=folder,
    )  # fmt: skip
    if answer.returncode == 77 or "unshare" in answer.stderr:
        pytest.skip("file systems cannot be mounted here")
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


EXAMINE = """
import os, subprocess
from pathlib import Path
from tallystick.indoubt.doctor import examine
from tallystick.services.transactions import TransactionManager
folder = Path.cwd().parent / Path.cwd().name  # as it is mounted now
os.chdir(folder)
TransactionManager("tm", {}, node="shop", recovery_interval=None).close()
MORE
for one in examine("tm", {}):
    if one.what in ("disk", "rights"):
        print(one.what, one.level, one.found, one.type_next, sep="; ")
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kibibytes", "options", "more", "said"),
    [
        (32 << 10, {}, "", "disk; problem; 3"),
        (512 << 10, {}, "", "disk; warning; 5"),
        (2 << 20, {}, "", "disk; ok; 2,0"),
        (2 << 20, {"nr_inodes": 60}, "", "more files are possible: a new segment may be refused"),
        (
            2 << 20, {}, 'subprocess.run(["mount", "-o", "remount,ro", folder], check=True)',
            "rights; problem; the file system is mounted read-only",
        ),
    ],
    ids=["full", "nearly full", "wide", "no more files", "read-only"],
)  # fmt: skip
def test_a_disk_that_cannot_keep_a_decision_is_found(
    tmp_path: Path, kibibytes: int, options: dict[str, int], more: str, said: str
) -> None:
    told = on_a_disk_of(kibibytes, tmp_path, EXAMINE.replace("MORE", more), **options)
    assert said in told
    assert ("; df -" in told) is ("disk; ok" not in told)


def test_the_process_that_has_the_coordinator_is_named_without_its_secrets(tmp_path: Path) -> None:
    script = tmp_path / "shop.py"
    script.write_text(
        "import sys\nfrom tallystick.services.transactions import TransactionManager\n"
        f"tm = TransactionManager({str(tmp_path / 'tm')!r}, {{}}, node='shop')\n"
        "print('open', flush=True)\nsys.stdin.read()\ntm.close()\n"
    )
    shop = subprocess.Popen(
        [sys.executable, script, "postgresql://me:secret@db/shop"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert shop.stdout is not None
        assert shop.stdout.readline() == "open\n"
        text = " ".join(" ".join(doctor(tmp_path / "tm", {})).split())
        python = Path(sys.executable).name
        assert f"node 'shop'; process {shop.pid} ({python} shop.py) works with it" in text
        assert "secret" not in text
    finally:
        shop.communicate("")
    assert "no process has it" in " ".join(doctor(tmp_path / "tm", {}))


@pytest.mark.long
@pytest.mark.postgres
def test_a_standby_is_found_with_the_address_of_its_primary(
    tmp_path: Path, postgres_server: Server
) -> None:
    with coordinator(tmp_path / "tm", {"pg": postgres_server.url}) as tm:
        tm.recover()
    with running(make_standby(postgres_server)) as standby:
        with untouched(tmp_path):
            checks = found(examine(str(tmp_path / "tm"), {"pg": standby.url}))
        assert checks["pg", "role"].level is Level.PROBLEM
        assert "a standby, which prepares nothing" in checks["pg", "role"].found
        assert "as noted" in checks["pg", "identity"].found  # it is the same database
        query = "SELECT sender_port FROM pg_stat_wal_receiver"
        with psycopg.connect(standby.url, autocommit=True) as pg:  # it begins a moment later
            deadline = time.monotonic() + START_SECONDS
            while pg.execute(query).fetchone() is None:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        again = found(examine(str(tmp_path / "tm"), {"pg": standby.url}))["pg", "role"]
        assert f"@127.0.0.1:{postgres_server.port}/" in again.type_next
        doctor(tmp_path / "tm", {"pg": standby.url})
        with coordinator(tmp_path / "tm", {"pg": standby.url}) as tm:
            assert any("takes no changes" in one.what for one in tm.preflight())


@pytest.mark.postgres
def test_a_user_whose_transactions_are_read_only_is_found_and_mended_by_what_is_typed(
    tmp_path: Path, postgres_server: Server
) -> None:
    coordinator(tmp_path / "tm", {}).close()
    with psycopg.connect(postgres_server.url, autocommit=True) as pg:
        pg.execute("CREATE ROLE reader LOGIN")
        pg.execute("ALTER ROLE reader SET default_transaction_read_only = on")
        url = postgres_server.url.replace("tally@", "reader@")
        role = found(examine(str(tmp_path / "tm"), {"pg": url}))["pg", "role"]
        assert role.level is Level.PROBLEM
        assert "read-only by default" in role.found
        with psycopg.connect(url, autocommit=True) as reader:
            reader.execute("SET default_transaction_read_only = off")
            reader.execute(role.type_next.encode())
        assert found(examine(str(tmp_path / "tm"), {"pg": url}))["pg", "role"].level is Level.OK
        pg.execute("DROP ROLE reader")


@pytest.mark.postgres
def test_prepared_transactions_near_their_limit_are_found_and_listed_by_what_is_typed(
    tmp_path: Path,
) -> None:
    coordinator(tmp_path / "tm", {}).close()
    with running(make_postgres(max_prepared_transactions="10")) as server:
        with psycopg.connect(server.url, autocommit=True) as pg:
            pg.execute("CREATE TABLE t (i INTEGER)")
            said = {}
            for used in range(1, 11):
                pg.execute(f"BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'lost {used}'")
                checks = found(examine(str(tmp_path / "tm"), {"pg": server.url}))
                said[used] = checks["pg", "prepared"]
            assert [said[used].level for used in (8, 9, 10)] == [
                Level.WARNING, Level.PROBLEM, Level.PROBLEM,
            ]  # fmt: skip
            assert "9 of 10 prepared" in said[9].found
            assert "soon PREPARE is refused" in said[9].found
            assert "now PREPARE is refused" in said[10].found
            listed = pg.execute(said[10].type_next.encode()).fetchall()
            assert [gid for gid, _, _ in listed] == [f"lost {used}" for used in range(1, 11)]
            with pytest.raises(psycopg.OperationalError, match="maximum number of prepared"):
                pg.execute("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'one more'")
        doctor(tmp_path / "tm", {"pg": server.url})


@pytest.mark.mariadb
def test_a_branch_that_a_live_session_holds_is_found_and_freed_by_what_is_typed(
    tmp_path: Path, mariadb_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator(tmp_path / "tm", {}).close()
    resources = {"maria": mariadb_server.url}

    def connect() -> Any:
        return pymysql.connect(
            host="127.0.0.1", port=mariadb_server.port, user="root",
            database=mariadb_server.database, autocommit=True,
        )  # fmt: skip

    def held() -> list[Check]:
        checks = examine(str(tmp_path / "tm"), resources)
        return [one for one in checks if "has held a branch" in one.found]

    owner, other = connect(), connect()
    with owner.cursor() as cursor, other.cursor() as admin:
        admin.execute("CREATE TABLE IF NOT EXISTS held_branch (i INTEGER)")
        statements = (
            "XA START 'x'",
            "INSERT INTO held_branch VALUES (1)",
            "XA END 'x'",
            "XA PREPARE 'x'",
        )
        for statement in statements:
            cursor.execute(statement)
        with pytest.raises(pymysql.MySQLError, match="XAER_NOTA"):
            admin.execute("XA ROLLBACK 'x'")
        assert not held()  # a commit is under way, it seems
        monkeypatch.setattr(branches, "OLD_S", 0)
        (warning,) = held()
        assert warning.level is Level.WARNING
        assert f"session {owner.thread_id()} has held a branch for" in warning.found
        doctor(tmp_path / "tm", resources)
        admin.execute(warning.type_next)
        for _ in range(200):  # the server ends a session a moment later
            if not held():
                break
        assert not held()
        admin.execute("XA ROLLBACK 'x'")
        admin.execute("DROP TABLE held_branch")
    other.close()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("ext4", None), ("xfs", None), ("btrfs", None), ("zfs", None), ("fuseblk", None),
        ("tmpfs", "in memory"), ("ramfs", "in memory"),
        ("overlay", "layer of a container"), ("fuse.fuse-overlayfs", "layer of a container"),
        ("nfs4", "another machine"), ("cifs", "another machine"), ("fuse.sshfs", "another machine"),
    ],
)  # fmt: skip
def test_a_coordinator_on_what_does_not_outlive_the_machine_is_warned_of(
    kind: str, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The innermost mount counts, its name may have a space, and symbolic links are followed."""
    volume = tmp_path / "a volume"
    coordinator(volume / "tm", {}).close()
    (tmp_path / "link").symlink_to(volume)
    other = "ext4" if said else "tmpfs"
    mounts(tmp_path, monkeypatch, {"/": other, str(volume): kind, f"{volume} 2": other})
    check = found(examine(str(tmp_path / "link" / "tm"), {}))["shop", "volume"]
    assert check.level is (Level.WARNING if said else Level.OK)
    assert f"the file system is {kind}" in check.found
    assert said is None or (said in check.found and "mount a disk" in check.type_next)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm")
def test_shared_memory_of_this_machine_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volumes, "MOUNTS", Path("/proc/self/mountinfo"))
    assert volumes.check_volume(Path("/dev/shm"), "shop").level is Level.WARNING


@pytest.mark.postgres
def test_old_prepared_transactions_are_named_with_what_they_hold_up(
    tmp_path: Path, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a coordinator, and one that is no XA id, which is ended by what is typed."""
    coordinator(tmp_path / "tm", {}).close()
    url = postgres_server.url

    def named() -> list[Check]:
        checks = examine(str(tmp_path / "tm"), {"pg": url})
        return [one for one in checks if (one.subject, one.what) == ("pg", "branch")]

    with psycopg.connect(url, autocommit=True) as pg:
        pg.execute("CREATE TABLE held (id int)")
        pg.execute("BEGIN; INSERT INTO held VALUES (1); PREPARE TRANSACTION 'cron''s job'")
        assert [one.level for one in named()] == [Level.OK]
        monkeypatch.setattr(branches, "OLD_S", 0)
        (foreign,) = named()
        assert foreign.level is Level.WARNING
        assert "no XA id" in foreign.found
        assert "locks (of held)" in foreign.found
        assert "VACUUM keeps" in foreign.found
        pg.execute(foreign.type_next)
        xid = Xid(1, b"shop" + b"0" * 20, b"1")
        pg.execute(f"BEGIN; INSERT INTO held VALUES (2); PREPARE TRANSACTION '{format_gid(xid)}'")
        (ours,) = named()
        assert "tallystick indoubt list" in ours.type_next
        pg.execute(f"ROLLBACK PREPARED '{format_gid(xid)}'")
    assert named() == []
