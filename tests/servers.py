"""Database servers for tests, started here and nowhere else touched.

`postgres_server` and `mariadb_server` start a server of their own once per test session, on
loopback and a free port, with a data directory of their own, and stop it by its process. Each
module of tests has a database of its own there, and leaves no prepared branch to the next one.
Where TALLYSTICK_MYSQL names the program of a MySQL server, that one stands in for MariaDB.
`make_pooler` makes a PgBouncer before a server of PostgreSQL. A `Server` can be killed and started
again, for tests of recovery. Servers refuse to run as root, so root starts them as another user.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg
import pymysql
import pytest
from psycopg import sql

from tests.memory import ROOM, memory
from tests.need import MYSQL, mariadb_program, need, postgres_bin, server_program

START_SECONDS = 180.0
NAME_MAX = 63
"""Bytes in the name of a database of PostgreSQL; MariaDB takes one more."""


MARIADB_ENGINE = "mysql+pymysql" if MYSQL else "mariadb+pymysql"
"""What SQLAlchemy calls a server of `make_mariadb`."""


@dataclass
class Server:
    """A database server: where it listens, and its life."""

    url: str
    port: int
    command: list[str]
    folder: Path
    user: str | None
    ready: Callable[[], object]
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def database(self) -> str:
        """The name of the database that the URL leads to."""
        return self.url.rpartition("/")[2]

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                user=self.user, start_new_session=True, cwd=self.folder,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.ready()
            except (psycopg.Error, pymysql.Error):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError((self.folder / "server.log").read_text()) from None
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """End it as a power cut would: no farewell, children included.

        A PostgreSQL backend leads a process group of its own and goes on for a moment after
        its server, so each process is killed by its id and waited for.
        """
        if self.process is None:
            return
        self.process.send_signal(signal.SIGSTOP)  # so that it starts no further child
        children = child_ids(self.process.pid)
        for process in (self.process.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait(timeout=START_SECONDS)
        self.process = None
        deadline = time.monotonic() + START_SECONDS
        while any(is_alive(child) for child in children):
            assert time.monotonic() < deadline, f"{children} outlive their server"
            time.sleep(0.005)

    def stop(self) -> None:
        """End it in good order."""
        if self.process is None:
            return
        postgres = "postgres" in self.command[0]
        self.process.send_signal(signal.SIGINT if postgres else signal.SIGTERM)
        self.process.wait(timeout=START_SECONDS)
        self.process = None


def stat_fields(process: int) -> list[str]:
    """Return what follows the command in ``/proc/PID/stat``: state, parent, group ...

    Raises:
        FileNotFoundError: There is no such process.
        ProcessLookupError: It ended meanwhile.
    """
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def child_ids(parent: int) -> list[int]:
    """Return the ids of the processes that ``parent`` started and that run still."""
    children = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if int(stat_fields(int(folder.name))[1]) == parent:
                children.append(int(folder.name))
    return children


def is_alive(process: int) -> bool:
    """Tell whether the process runs; one that waits to be reaped does not."""
    try:
        return stat_fields(process)[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def free_port() -> int:
    """A port of loopback that no process listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _unprivileged(*names: str) -> str | None:
    """A user to run a server as: None unless this is root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in (*names, "nobody") if name in known)


def _home(user: str | None, *, in_memory: bool = False) -> Path:
    """A folder of the server's own; short, as the path of a Unix socket is limited.

    In memory only where there is enough of it: a server that is killed leaves there what it leaves
    on a disk, as its writes are with the kernel, and no test waits for its syncs.
    """
    place = memory(ROOM) if in_memory else None
    folder = Path(tempfile.mkdtemp(prefix="tallystick-db-", dir=place))
    if user is not None:
        shutil.chown(folder, user)
    return folder


def make_postgres(*, in_memory: bool = False, **settings: str) -> Server:
    """A new PostgreSQL server, not yet started; ``settings`` go to its command line."""
    binaries = postgres_bin()
    assert binaries is not None
    user, port = _unprivileged("postgres"), free_port()
    folder = _home(user, in_memory=in_memory)
    subprocess.run(
        [binaries / "initdb", "-D", folder / "data", "-U", "tally", "-A", "trust", "-E", "UTF8"],
        check=True, capture_output=True, user=user, cwd=folder,
    )  # fmt: skip
    return _postgres(binaries, folder, user, port, settings)


def make_standby(primary: Server) -> Server:
    """A standby of a PostgreSQL server that runs, by streaming; not yet started."""
    binaries = postgres_bin()
    assert binaries is not None
    folder = _home(primary.user)
    subprocess.run(
        [binaries / "pg_basebackup", "-D", folder / "data", "-R", "-c", "fast", "-d", primary.url],
        check=True, capture_output=True, user=primary.user, cwd=folder,
    )  # fmt: skip
    return _postgres(binaries, folder, primary.user, free_port(), {}, primary.database)


def _one_sync_after_a_kill(binaries: Path) -> dict[str, str]:
    """Have a server that was killed force the file system, not each of ten thousands of files.

    Each module of tests has a database, of 300 files, and a slow disk took more than a minute.
    """
    said = subprocess.run([binaries / "postgres", "--version"], capture_output=True, check=True)
    major = int(re.search(rb"[0-9]+", said.stdout)[0])  # type: ignore[index]
    return {"recovery_init_sync_method": "syncfs"} if major >= 14 else {}


def _postgres(
    binaries: Path,
    folder: Path,
    user: str | None,
    port: int,
    settings: dict[str, str],
    database: str = "postgres",
) -> Server:
    options = {
        "port": str(port),
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": str(folder),
        "max_prepared_transactions": "200",
        "max_connections": "200",
        "shared_buffers": "32MB",
        "dynamic_shared_memory_type": "mmap",  # in its folder, and not left by a kill
        "autovacuum": "off",  # with a database for each module, a process every second
        **_one_sync_after_a_kill(binaries),
    } | settings
    flags = [f"-c{name}={value}" for name, value in options.items()]
    url = f"postgresql://tally@127.0.0.1:{port}/{database}"

    def ready() -> None:
        psycopg.connect(url, connect_timeout=2).close()

    command = [str(binaries / "postgres"), "-D", str(folder / "data"), *flags]
    return Server(url, port, command, folder, user, ready)


def make_pooler(server: Server, **settings: str) -> Server:
    """A new PgBouncer before a PostgreSQL server, in transaction mode; not yet started."""
    program = server_program("pgbouncer")
    assert program is not None
    user, port = _unprivileged("postgres"), free_port()
    folder = _home(user)
    options = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(port),
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": "transaction",
        "server_login_retry": "0.05",
    } | settings
    lines = [f"{name} = {value}" for name, value in options.items()]
    target = f"* = host=127.0.0.1 port={server.port} user=tally"
    text = "\n".join(["[databases]", target, "[pgbouncer]", *lines, ""])
    (folder / "pgbouncer.ini").write_text(text)
    url = server.url.replace(f":{server.port}/", f":{port}/")

    def ready() -> None:
        psycopg.connect(url, connect_timeout=2).close()

    command = [str(program), str(folder / "pgbouncer.ini")]
    return Server(url, port, command, folder, user, ready)


def make_mariadb(*, in_memory: bool = False) -> Server:
    """A new server of MariaDB, or of MySQL where that is asked for; not yet started."""
    program = mariadb_program()
    assert program is not None
    user, port = _unprivileged("mysql"), free_port()
    folder = _home(user, in_memory=in_memory)
    data, sock = folder / "data", folder / "sock"
    # A server that starts removes the temporary tables of all others in a folder that they share.
    temporary = f"--tmpdir={folder}"
    setup: list[str | Path]
    if MYSQL:
        setup = [program, "--no-defaults", f"--datadir={data}", temporary, "--initialize-insecure"]
        flags = ["--mysqlx=OFF", "--default-authentication-plugin=mysql_native_password"]
    else:
        install = shutil.which("mariadb-install-db")
        assert install is not None
        setup = [install, "--no-defaults", f"--datadir={data}", temporary, "--skip-test-db",
                 "--auth-root-authentication-method=normal"]  # fmt: skip
        flags = []
    subprocess.run(setup, check=True, capture_output=True, user=user, cwd=folder)
    url = f"mariadb://root@127.0.0.1:{port}/mysql"

    def ready() -> None:
        pymysql.connect(host="127.0.0.1", port=port, user="root", connect_timeout=2).close()

    command = [str(program), "--no-defaults", f"--datadir={data}", temporary, f"--socket={sock}",
               f"--port={port}", "--bind-address=127.0.0.1", f"--pid-file={folder / 'pid'}",
               "--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=64M",
               "--max-connections=300", "--skip-log-bin", *flags]  # fmt: skip
    return Server(url, port, command, folder, user, ready)


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """Have a server run; its folder is removed at the end."""
    server.start()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def _postgres_of_all() -> Iterator[Server]:
    need("postgres")
    with running(make_postgres(in_memory=True)) as server:
        yield server


@pytest.fixture(scope="session")
def _mariadb_of_all() -> Iterator[Server]:
    need("mariadb")
    with running(make_mariadb(in_memory=True)) as server:
        yield server


@contextlib.contextmanager
def _own_database(server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """Have the URL lead to a database of a module's own, while it runs; yield the other URL."""
    name, before = request.module.__name__.removeprefix("tests.").replace(".", "_"), server.url
    server.url = f"{before.rpartition('/')[0]}/{name[-NAME_MAX:]}"
    yield before
    server.url = before


@pytest.fixture(scope="module")
def postgres_server(_postgres_of_all: Server, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A PostgreSQL server with two-phase commit enabled, and a database of this module's own."""
    server = _postgres_of_all
    with _own_database(server, request) as other:
        with (
            psycopg.connect(other, autocommit=True) as admin,
            contextlib.suppress(psycopg.errors.DuplicateDatabase),
        ):
            admin.execute(f"CREATE DATABASE {server.database}")
        yield server
        with psycopg.connect(server.url, autocommit=True) as admin:
            left = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
            for (gid,) in admin.execute(left).fetchall():
                admin.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))


@pytest.fixture(scope="module")
def mariadb_server(_mariadb_of_all: Server, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A MariaDB server, and a database of this module's own. Branches are those of the server."""
    server = _mariadb_of_all
    connect = partial(pymysql.connect, host="127.0.0.1", port=server.port, user="root")
    with _own_database(server, request):
        with connect() as admin, admin.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {server.database}")
        yield server
        with connect() as admin, admin.cursor() as cursor:
            cursor.execute("XA RECOVER CONVERT XID" if MYSQL else "XA RECOVER FORMAT='SQL'")
            for form, size, _, xid in cursor.fetchall():
                if MYSQL:  # 0x, and in hex the gtrid and the bqual
                    cut = 2 + 2 * size
                    xid = f"X'{xid[2:cut]}',X'{xid[cut:]}',{form}"
                with contextlib.suppress(pymysql.MySQLError):  # its session holds it still
                    cursor.execute(f"XA ROLLBACK {xid}")
