"""Every option of a URL reaches the driver, or is an error."""

from __future__ import annotations

import shutil
import subprocess
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.errors import TransactionUsageError
from tallystick.records import Xid
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.resource import ResourceUnreachable
from tallystick.services.transactions.resources import adapt
from tests.need import need
from tests.servers import Server, make_mariadb, running


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mariadb://root@127.0.0.1/db?ssl_mode=required", "'ssl_mode' of 'db' is not known"),
        ("mysql://root@127.0.0.1/db?ssl_ca=a&ssl_ca=b", "given twice"),
        ("mysql://root@127.0.0.1/db?connect_timeout=soon", "no value"),
        ("mysql://root@127.0.0.1/db?ssl_verify_cert=perhaps", "no value"),
        ("mysql://root@127.0.0.1/db?autocommit=false", "'autocommit' of 'db' is not known"),
        ("mysql://root:pass#word@127.0.0.1/db", "fragment"),
        ("mysql+mysqldb://root@127.0.0.1/db", "through pymysql, not mysqldb"),
        ("postgresql+psycopg2://tally@127.0.0.1/db", "through psycopg, not psycopg2"),
        ("sqlite:///lite.db?mode=ro", "'mode' of 'db' is not known"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
    ],
)
def test_what_would_not_be_passed_on_is_refused(url: str, message: str) -> None:
    with pytest.raises(TransactionUsageError, match=message):
        adapt("db", url)


def test_a_relative_path_is_that_of_the_folder_in_which_the_manager_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    monkeypatch.chdir(old)
    with TransactionManager(
        tmp_path / "c", {"orders": "sqlite:///orders.db"}, recovery_interval=None
    ) as manager:
        monkeypatch.chdir(new)
        with manager.begin() as tx:
            tx["orders"].execute("CREATE TABLE orders (id INTEGER)")
    assert (old / "orders.db").is_file()
    assert not list(new.iterdir())


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "mariadb"])
@pytest.mark.parametrize("rest", ["[host/db", "host:70000000/db", "host:port/db", "%zz/db", "["])
def test_a_url_that_cannot_be_read_is_not_quoted_with_its_password(scheme: str, rest: str) -> None:
    """Some are found to be wrong when the connection is made."""
    with pytest.raises((TransactionUsageError, ResourceUnreachable)) as caught:
        adapt("db", f"{scheme}://user:hunter2@{rest}").begin(Xid(1, b"gtrid", b"bqual"))
    shown = "".join(traceback.format_exception_only(caught.value)) + repr(caught.value.__cause__)
    assert "hunter2" not in shown


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate authority, a server's certificate, and another authority."""
    folder = tmp_path_factory.mktemp("tls")
    program = shutil.which("openssl")
    assert program is not None

    def openssl(*arguments: str) -> None:
        subprocess.run([program or "", *arguments], check=True, capture_output=True, cwd=folder)

    for name in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key",
                "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "2")  # fmt: skip
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr",
            "-subj", "/CN=127.0.0.1")  # fmt: skip
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", "server.pem", "-days", "2", "-extfile", "names")  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def tls_server(authority: Path) -> Iterator[Server]:
    """A MariaDB server with TLS."""
    need("mariadb")
    server = make_mariadb()
    for file in ("ca.pem", "server.pem", "server.key"):
        shutil.copy(authority / file, server.folder / file)
        if server.user is not None:
            shutil.chown(server.folder / file, server.user)
    files = {"ca": "ca.pem", "cert": "server.pem", "key": "server.key"}
    server.command += [f"--ssl-{what}={server.folder / file}" for what, file in files.items()]
    with running(server):
        yield server


def cipher(folder: Path, url: str) -> str:
    """Return the cipher of a branch's connection; empty if it is in plain text."""
    with TransactionManager(folder, {"maria": url}, recovery_interval=None) as tm, tm.begin() as tx:
        status = tx["maria"].execute("SHOW STATUS LIKE 'Ssl_cipher'").fetchone()
    return str(status[1])


@pytest.mark.mariadb
def test_tls_of_a_url_is_used(tmp_path: Path, authority: Path, tls_server: Server) -> None:
    options = f"?ssl_ca={authority}/ca.pem&ssl_verify_cert=true&ssl_verify_identity=yes"
    assert cipher(tmp_path, tls_server.url + options)
    assert not cipher(tmp_path, f"{tls_server.url}?ssl_disabled=true")


@pytest.mark.mariadb
def test_a_server_of_another_authority_is_refused(
    tmp_path: Path, authority: Path, tls_server: Server
) -> None:
    options = f"?ssl_ca={authority}/other.pem&ssl_verify_cert=true"
    with pytest.raises(ResourceUnreachable, match="certificate verify failed"):
        cipher(tmp_path, tls_server.url + options)


@pytest.mark.mariadb
def test_a_server_without_tls_is_refused(
    tmp_path: Path, authority: Path, mariadb_server: Server
) -> None:
    options = f"?ssl_ca={authority}/ca.pem&ssl_verify_cert=true"
    with pytest.raises(ResourceUnreachable, match=r"TLS|SSL"):
        cipher(tmp_path, mariadb_server.url + options)


@pytest.mark.mariadb
def test_other_options_of_a_url_are_used(tmp_path: Path, mariadb_server: Server) -> None:
    url = f"{mariadb_server.url}?init_command=SET%20%40tally%20%3D%207&connect_timeout=5"
    with (
        TransactionManager(tmp_path, {"maria": url}, recovery_interval=None) as tm,
        tm.begin() as tx,
    ):
        assert tx["maria"].execute("SELECT @tally").fetchone() == (7,)


@pytest.mark.postgres
def test_options_of_libpq_are_used(tmp_path: Path, postgres_server: Server) -> None:
    url = f"{postgres_server.url}?application_name=tally&options=-c%20statement_timeout%3D7s"
    with TransactionManager(tmp_path, {"pg": url}, recovery_interval=None) as tm, tm.begin() as tx:
        assert tx["pg"].execute("SHOW statement_timeout").fetchone() == ("7s",)
