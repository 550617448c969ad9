"""The real Bitronix manager, of each line, and ours settle what the other left, over the same data.

Both use PostgreSQL and MariaDB, Bitronix through their JDBC drivers; one is killed before or after
its decision, and the other recovers from its log.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psycopg
import pytest

from tallystick.reconcile.gid import format_gid
from tallystick.records import Xid
from tallystick.services.transactions import RecoveryReport, TransactionManager
from tallystick.services.transactions.resources import adapt
from tallystick.services.transactions.xids import FORMAT_ID
from tallystick.systems.bitronix.format.layout import make_gtrid
from tallystick.systems.registry import open_decision_log
from tests.interop.bitronix.original import OLD, on_each_line, run_manager
from tests.servers import Server
from tests.services.transactions import killed
from tests.services.transactions.bank import Bank

pytestmark = [pytest.mark.interop, pytest.mark.postgres, pytest.mark.mariadb]

NAMES = ("pg", "maria")
PREPARED_WITHIN = 60.0
"""Seconds for a server to do what a process asked of it before it was killed."""
WHOLE, ABSENT = {"pg": -1, "maria": 1}, {"pg": 0, "maria": 0}


@pytest.fixture
def bank(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Bank:
    return Bank(tmp_path, postgres_server, mariadb_server)


def theirs(
    bank: Bank, line: str, mode: str, node: str = killed.NODE
) -> subprocess.CompletedProcess[str]:
    """Run the real manager over the log ``bitronix`` in the bank's folder."""
    log = bank.folder / "bitronix"
    log.mkdir(exist_ok=True)
    pg, maria = (bank.urls[name].partition("@")[2] for name in NAMES)
    return run_manager(
        log,
        line,
        node,
        mode,
        ("pg", "org.postgresql.xa.PGXADataSource", f"jdbc:postgresql://{pg}?user=tally"),
        ("maria", "org.mariadb.jdbc.MariaDbDataSource", f"jdbc:mariadb://{maria}?user=root"),
    )


def ours(bank: Bank, node: str = killed.NODE) -> RecoveryReport:
    """Run our manager's recovery over the same log."""
    with TransactionManager(
        bank.folder / f"coordinator-of-{node}",
        {name: bank.urls[name] for name in NAMES},
        node=node,
        log=open_decision_log(bank.folder / "bitronix", "bitronix"),
        orphan_interval=0.0,
        recovery_interval=None,
    ) as tm:
        report = tm.recover()
        assert not tm.decisions.open_decisions()
        return report


def in_doubt(bank: Bank) -> dict[str, list[Xid]]:
    """Return the prepared branches of the databases, as our resources list them."""
    found = {}
    for name in NAMES:
        resource = adapt(name, bank.urls[name])
        found[name] = list(resource.in_doubt())
        resource.close()
    return found


def totals(bank: Bank) -> dict[str, int]:
    return {name: sum(rows) for name, rows in bank.balances(NAMES).items()}


@pytest.mark.sampled(2)
@on_each_line
@pytest.mark.parametrize(
    ("step", "printed", "left"),
    [
        ("after decision", "1 0 null", WHOLE),  # transactions
        ("before decision", "0 2 null", ABSENT),  # branches
        ("asked pg", "0 1 null", ABSENT),
    ],
)
def test_bitronix_settles_what_our_manager_left(
    bank: Bank, line: str, step: str, printed: str, left: dict[str, int]
) -> None:
    assert not bank.run("step", step, (*NAMES, "log"))
    until = time.monotonic() + PREPARED_WITHIN
    while not any(in_doubt(bank).values()):  # what was asked of a server may not be done yet
        assert time.monotonic() < until
        time.sleep(0.05)
    assert theirs(bank, line, "recover").stdout.split("\n")[0] == printed
    assert not any(in_doubt(bank).values())
    assert totals(bank) == left


@pytest.mark.sampled(2)
@on_each_line
@pytest.mark.parametrize(("mode", "left"), [("decided", WHOLE), ("prepared", ABSENT)])
def test_our_manager_settles_what_bitronix_left(
    bank: Bank, line: str, mode: str, left: dict[str, int]
) -> None:
    assert theirs(bank, line, mode).returncode == 9
    found = in_doubt(bank)
    assert {xid.gtrid for xids in found.values() for xid in xids} == {found["pg"][0].gtrid}
    report = ours(bank)
    done = report.committed if mode == "decided" else report.rolled_back
    assert sorted(name for name, _ in done) == sorted(NAMES)
    assert report.clean
    assert not any(in_doubt(bank).values())
    assert totals(bank) == left
    assert theirs(bank, line, "recover").stdout.startswith("0 0 null"), "and to them it is settled"


@on_each_line
def test_each_goes_on_over_the_log_and_the_databases_of_the_other(bank: Bank, line: str) -> None:
    for round_ in range(1, 3):
        assert theirs(bank, line, "commit").stdout == "committed\n"
        assert bank.run("step", -1, (*NAMES, "log"))
        assert totals(bank) == {"pg": -2 * round_, "maria": 2 * round_}


@on_each_line
def test_each_leaves_the_branches_of_other_nodes_alone(bank: Bank, line: str) -> None:
    assert theirs(bank, line, "prepared", "bitronix-2").returncode == 9
    assert not bank.run("step", "before decision", (*NAMES, "log"))
    before = in_doubt(bank)
    assert theirs(bank, line, "recover", "bitronix-3").stdout.startswith("0 0 null")
    assert in_doubt(bank) == before
    assert {branch.node for branch in ours(bank).left} == {"bitronix-2"}
    assert theirs(bank, line, "recover", "bitronix-2").stdout.startswith("0 2 null")
    assert not any(in_doubt(bank).values())
    assert totals(bank) == ABSENT


def test_pgjdbc_and_we_spell_an_id_alike_whatever_its_bytes(bank: Bank) -> None:
    """A branch under an id that is no text is prepared here and settled through pgjdbc."""
    gtrid = make_gtrid("bitronix-4", 0x0102_03FF_FE80_0041, 0xFFFE)
    xid = Xid(FORMAT_ID, gtrid, make_gtrid("bitronix-4", 7, 0x80FF))
    with psycopg.connect(bank.urls["pg"], autocommit=True) as pg:
        pg.execute("BEGIN")
        pg.execute("UPDATE accounts SET balance = 7 WHERE id = 0")
        pg.execute(f"PREPARE TRANSACTION '{format_gid(xid)}'")
    assert in_doubt(bank)["pg"] == [xid]
    assert theirs(bank, OLD, "recover", "bitronix-4").stdout.startswith("0 1 null")
    assert not in_doubt(bank)["pg"]
