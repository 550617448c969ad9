"""The statements of a runbook end a branch in the real Derby and H2, and no other."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tallystick.indoubt.listing import list_in_doubt
from tallystick.indoubt.runbook import Act, act_of
from tests.interop.java import classpath, compile_java, run_java

pytestmark = pytest.mark.interop

DERBY = ["org.apache.derby:derby:10.14.2.0"]
NEW_DERBY = [f"org.apache.derby:{one}:10.16.1.1" for one in ("derby", "derbytools")]
H2 = ["com.h2database:h2:1.4.200"]


@cache
def _classpath(*jars: str) -> str:
    return f"{classpath(jars)}:{compile_java(Path(__file__).parent)}"


def _act(log: Path, *, commit: bool) -> Act:
    (one,) = list_in_doubt([str(log)]).transactions
    return act_of(one, one.branches[0], {}, commit=commit)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("jars", [DERBY, NEW_DERBY], ids=["10.14", "10.16"])
@pytest.mark.parametrize("commit", [True, False])
def test_derby_ends_the_branch(tmp_path: Path, jars: list[str], commit: bool) -> None:
    database, path = tmp_path / 'a "bank"', _classpath(*jars)
    source = "org.apache.derby.jdbc.EmbeddedXADataSource"
    options = ("setDatabaseName", database, "setCreateDatabase", "create")
    run_java("InDoubt", "prepare", source, *options, classpath=path)
    act = _act(database, commit=commit)
    typed = act.typed
    other = typed.replace('equals("00ff01")', 'equals("00ff02")')
    environment = os.environ | {"CLASSPATH": path}
    for script, said in ((other, ""), (typed, f"{'commit' if commit else 'rollback'}: done\n")):
        answer = subprocess.run(
            ["bash", "-c", script], env=environment, cwd=tmp_path, text=True, check=True,
            capture_output=True, timeout=120,
        )  # fmt: skip
        assert answer.stdout.endswith(said)
        assert bool(list_in_doubt([str(database)]).transactions) == (script is other)
    rows = run_java(
        "InDoubt", "sql", f"jdbc:derby:{database}", act.listing.rstrip(";"), "SELECT * FROM T",
        classpath=path,
    )  # fmt: skip
    assert rows.split() == (["7"] if commit else [])


@pytest.mark.parametrize("commit", [True, False])
def test_h2_ends_the_branch(tmp_path: Path, commit: bool) -> None:
    url, path = f"jdbc:h2:{tmp_path}/bank;MV_STORE=FALSE;USER=sa", _classpath(*H2)
    source = "org.h2.jdbcx.JdbcDataSource"
    options = ("setURL", url, "setUser", "sa")
    run_java("InDoubt", "prepare", source, *options, classpath=path)
    act = _act(tmp_path, commit=commit)
    listed = run_java("InDoubt", "sql", url, act.listing, act.typed, classpath=path)
    assert listed.split() == [act.typed.split('"')[1]]
    rows = run_java("InDoubt", "sql", url, act.listing, "SELECT * FROM T", classpath=path)
    assert rows.split() == (["7"] if commit else [])
    assert not list_in_doubt([str(tmp_path)]).transactions
