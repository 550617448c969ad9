"""``tallystick backlog`` and ``tallystick replay`` over both logs of write-behind."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from tallystick.cli.act import replay
from tallystick.cli.watch import backlog
from tallystick.disposal.disposers import MoveDisposer
from tallystick.disposal.worker import dispose_of
from tallystick.errors import CorruptLogError, NotALogError, UnsupportedFormatError
from tallystick.indoubt.doctor import Level, examine
from tallystick.services.journal import Journal
from tallystick.services.write_behind import TargetDownError, WriteBehind, WriteBehindSettings
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles import TallyPersistLog
from tests.kit import untouched
from tests.systems.tally.live.test_retention import OPERATIONS, SMALL


def down(_: Any) -> None:
    raise TargetDownError("away")


def run(command: Any, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture(params=["tally", "cloudtran"])
def left_behind(request: Any, tmp_path: Path) -> tuple[Path, str]:
    """A service that stopped with three transactions pending for a target that is away."""
    settings = WriteBehindSettings(close_timeout=0.0)
    path = tmp_path / "spool"
    with WriteBehind(path, {"orders": down}, system=request.param, settings=settings) as behind:
        for number in range(1, 4):
            with behind.begin(reference=f"order-{number}") as tx:
                tx.insert("orders", {"id": number}, {"state": "new"})
    return path, request.param


@pytest.mark.parametrize("place", ["[::1", "h:no", "u:hunter2@x:h/d"])
def test_an_address_without_a_port_is_refused_in_a_sentence(place: str, tmp_path: Path) -> None:
    WriteBehind(tmp_path, {"orders": down}).close()
    with untouched(tmp_path):
        code, text = run(replay.command, str(tmp_path), "--target", f"orders=postgresql://{place}")
    assert (code, "'orders': the address has no port" in text) == (2, True)
    assert "hunter2" not in text


def test_the_backlog_is_counted_and_nothing_touched(left_behind: tuple[Path, str]) -> None:
    path, system = left_behind
    with untouched(path):
        code, text = run(backlog.command, str(path), "--json", "--numbers")
    assert code == 1
    (log,) = json.loads(text)["logs"]
    assert (log["system"], log["pending"], log["targets"]) == (system, 3, {"orders": 3})
    assert log["oldest_seconds"] < 600
    assert [one["reference"] for one in log["transactions"]] == ["order-1", "order-2", "order-3"]
    code, text = run(backlog.command, str(path))
    assert "3 pending" in text


def test_a_service_of_which_only_notes_are_left_is_lost_where_it_does_not_open(
    left_behind: tuple[Path, str],
) -> None:
    """The mark of a log of blocks says which of them were not disposed of."""
    path, system = left_behind
    for file in (path / "log").glob("*.ctlog" if system == "cloudtran" else "*.tally"):
        file.unlink()
    with pytest.raises(CorruptLogError):
        WriteBehind(path, {"orders": down}, system=system)
    with untouched(path):
        code, text = run(backlog.command, str(path))
        assert (code, "CANNOT TELL" in text) == (1, True)
        problems = [one.what for one in examine(str(path), {}) if one.level is Level.PROBLEM]
        assert problems == ["log"]


def asked(database: Path, statement: str) -> list[Any]:
    """Run a statement, close the connection, return the rows."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return connection.execute(statement).fetchall()


def test_replay_brings_it_to_the_target_once(left_behind: tuple[Path, str], tmp_path: Path) -> None:
    path, system = left_behind
    database = tmp_path / "orders.db"
    asked(database, "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)")
    arguments = [str(path), "--target", f"orders=sqlite:///{database}"]
    if system == "tally":
        arguments += ["--system", system]  # it may be said, and need not
    code, text = run(replay.command, *arguments, "--discard", "2", "--json")
    assert (code, json.loads(text)) == (0, {"pending": 3, "left": []})
    rows = asked(database, "SELECT id FROM orders ORDER BY id")
    assert rows == [(1,), (3,)]
    assert run(replay.command, *arguments)[1] == "0 of 0 applied or given up\n"
    assert run(backlog.command, str(path))[0] == 0


def test_replay_needs_a_target_with_a_url(left_behind: tuple[Path, str]) -> None:
    assert run(replay.command, str(left_behind[0]), "--target", "nonsense")[0] == 2
    assert run(replay.command, str(left_behind[0]))[0] == 2


def test_replay_tries_a_target_that_is_away_for_as_long_as_it_may(
    left_behind: tuple[Path, str],
) -> None:
    target = "orders=mysql+pymysql://root@127.0.0.1:1/orders"
    code, text = run(replay.command, str(left_behind[0]), "--target", target, "--timeout", "0.3")
    assert code == 1
    assert "still pending: 3 order-3: orders: " in text


def test_replay_to_a_target_of_another_moment_is_one_answer(tmp_path: Path) -> None:
    """No traceback of the thread that has found it out, and no log line, stands beside it."""
    database, settings = tmp_path / "orders.db", WriteBehindSettings(close_timeout=0.0)
    url = f"sqlite:///{database}"
    asked(database, "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)")
    engine = sa.create_engine(url)
    with WriteBehind(tmp_path / "spool", {"orders": engine}) as behind:
        with behind.begin() as tx:
            tx.insert("orders", {"id": 1}, {"state": "new"})
        assert behind.drain(60)
    engine.dispose()
    with (
        WriteBehind(tmp_path / "spool", {"orders": down}, settings=settings) as behind,
        behind.begin() as tx,
    ):
        tx.insert("orders", {"id": 2}, {"state": "new"})
    asked(database, "DROP TABLE tallystick_applied")
    command = [sys.executable, "-m", "tallystick", "replay", str(tmp_path / "spool")]
    for _ in range(2):
        ran = subprocess.run(
            [*command, "--target", f"orders={url}"], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 2
        assert ran.stdout == ""
        assert ran.stderr.startswith("tallystick: the target and the log are of two moments")
        assert "Traceback" not in ran.stderr
        assert "gets nothing any more" not in ran.stderr
        assert f"rm {tmp_path}/spool/targets" in ran.stderr
    assert [one for (one,) in asked(database, "SELECT id FROM orders")] == [1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--target", "orders=mysql+pymysql://root@127.0.0.1:1/orders", "--discard", "99"],
        ["--target", "orders=sqlite://"],
        ["--target", "orders=sqlite:///no-such.db"],
        ["--target", "orders=sqlite:////no/such.db?timeout=3"],
        ["--target", "orders=sqlite+pysqlite:///file:no-such.db?uri=true"],
        ["--target", "orders=no dialect at all"],
        ["--target", "orders=nosuchdialect://"],
    ],
)
def test_what_cannot_be_done_is_wrong_usage_and_changes_nothing(
    left_behind: tuple[Path, str], arguments: list[str], tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    here = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    code, _ = run(replay.command, str(left_behind[0]), *arguments)
    assert code == 2
    assert not list(here.iterdir())
    assert run(backlog.command, str(left_behind[0]))[0] == 1


def test_folder_that_is_no_service_is_not_made_one(tmp_path: Path) -> None:
    with untouched(tmp_path):
        code, text = run(replay.command, str(tmp_path), "--target", "orders=sqlite://")
    assert code == 2
    assert "no write-behind service" in text


def test_service_that_lost_its_identity_is_not_replayed(left_behind: tuple[Path, str]) -> None:
    path, _ = left_behind
    (path / "identity").unlink()
    with untouched(path):
        code, text = run(replay.command, str(path), "--target", "orders=sqlite://")
    assert code == 2
    assert "lost its file identity" in " ".join(text.split())


def test_log_of_one_system_is_not_opened_as_one_of_another(left_behind: tuple[Path, str]) -> None:
    path, system = left_behind
    other = {"tally": "cloudtran", "cloudtran": "tally"}[system]
    with untouched(path), pytest.raises(UnsupportedFormatError, match="another system"):
        WriteBehind(path, {"orders": down}, system=other)


def test_commands_of_the_guide_do_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[2] / "docs/guide/write-behind.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        exec(block, namespace)
    (shell,) = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    owed, brought = [shlex.split(line) for line in shell.splitlines()]
    code, output = run(backlog.command, *owed[2:])
    assert (code, "order-8" in output) == (1, True)
    assert run(replay.command, *brought[2:]) == (0, "1 of 1 applied or given up\n")
    assert run(backlog.command, *owed[2:])[0] == 0
    rows = asked(Path("shop.db"), "SELECT id, state FROM orders ORDER BY id")
    assert rows == [(7, "paid"), (8, "new")]


def test_a_backlog_of_what_is_no_write_behind_log_is_refused(tmp_path: Path) -> None:
    """Nothing pending and exit code 0 would be the answer about another service."""
    Journal(tmp_path / "journal").close()
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "journal", tmp_path / "empty", tmp_path):
        ran = CliRunner().invoke(backlog.command, [str(path)])
        assert isinstance(ran.exception, NotALogError), ran.output
        assert "no write-behind log is here" in str(ran.exception)


def test_a_backlog_leaves_out_the_logs_of_other_services_beside(
    left_behind: tuple[Path, str],
) -> None:
    path, system = left_behind
    Journal(path.parent / "journal").close()
    _, text = run(backlog.command, str(path.parent), "--json")
    assert [one["system"] for one in json.loads(text)["logs"]] == [system]


def test_an_archive_owes_nothing_as_later_segments_may_hold_its_marks(tmp_path: Path) -> None:
    log = TallyPersistLog(TallyLog(str(tmp_path / "log"), settings=replace(SMALL, recycle=False)))
    numbers = [log.persisting(("a",), OPERATIONS)[0] for _ in range(20)]
    log.log.flush()
    for number in numbers:
        log.persisted(number, ("a",))
    log.roll()
    path = log.disposable()[0]
    disposer = MoveDisposer(str(tmp_path / "archive"))
    dispose_of(disposer, path, log.archive_name(path))
    log.close()
    code, text = run(backlog.command, str(tmp_path / "archive"), "--json")
    (one,) = json.loads(text)["logs"]
    assert one["pending"] > 0, "the case is not the one that is meant"
    assert (code, one["archive"]) == (0, True)
    assert "An archive: " in run(backlog.command, str(tmp_path / "archive"))[1]
