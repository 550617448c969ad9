"""The small programs of the gallery: short, and each does what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from tests.fixtures import fixture_dir
from tests.servers import Server

EXAMPLES = Path(__file__).parents[1] / "examples"
LINES_MAX = 60
GALLERY = {
    "durable_queue": [
        r"mail: order 0\nmail: order 1\nmail: order 2\nindex waits for 3",
        r"mail: order 0\nmail: order 1\nmail: order 2\nindex waits for 6",
    ],
    "event_sourcing": [
        r"0 events since the snapshot: \{\}",
        r"1 events since the snapshot: \{'ann': 10, 'bob': 5\}",
    ],
    "key_value_store": [
        r"\d+ crash states at \d+ moments .*, \d+ recoveries; never happened: .*again=10\)"
    ],
    "outbox_to_broker": [
        r"no order, and no message: UNIQUE constraint .*\n3 deliveries of \['order 1', 'order 2'\]",
    ],
    "two_services": [r"\(\{0, 10, 11, 12\}, \{0, 10, 11, 12\}\)"],
}
"""What each program prints, at its first run in a folder, at its second."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", GALLERY)
def test_a_program_of_the_gallery_does_what_it_says(name: str, tmp_path: Path) -> None:
    program = EXAMPLES / f"{name}.py"
    assert len(program.read_text("utf-8").splitlines()) < LINES_MAX
    for expected in GALLERY[name]:
        command = [sys.executable, "-W", "error", str(program), str(tmp_path)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert re.fullmatch(expected, ran.stdout.strip()), ran.stdout


def run_program(name: str, *arguments: object) -> str:
    """Run a program of the gallery that reads logs; returns what it prints."""
    program = EXAMPLES / f"{name}.py"
    assert len(program.read_text("utf-8").splitlines()) < LINES_MAX
    command = [sys.executable, "-W", "error", str(program), *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_hornetq_journal_becomes_one_of_artemis(tmp_path: Path) -> None:
    old = fixture_dir("jboss") / "g2-hornetq-2.1.2/tx-prepared"
    said = run_program("hornetq_to_artemis", old, tmp_path / "new").splitlines()
    assert said[0] == "g2 (HornetQ 2.1): safe"
    assert said[1].startswith("carried: {'records': 3, 'prepared transactions': 2} over: ")
    assert said[2:] == ["3 records live", "in doubt: 7", "in doubt: 11"]


def test_a_log_of_derby_becomes_tables_of_duckdb(tmp_path: Path) -> None:
    logs, database = EXAMPLES / "estate/mid-phase-two/derby", tmp_path / "tables.duckdb"
    for _ in range(2):
        said = run_program("derby_into_duckdb", logs, database)
        assert re.findall(r"^(\S+) \{'", said, re.MULTILINE) == ["APP.ACCOUNTS", "APP.TRANSFERS"]
    with duckdb.connect(str(database)) as opened:
        rows = opened.execute('SELECT count(DISTINCT "ID") FROM "APP.ACCOUNTS"').fetchall()
    assert rows == [(18,)]


@pytest.mark.postgres
def test_a_database_of_h2_is_saved_into_postgresql(postgres_server: Server) -> None:
    said = run_program("h2_to_postgres", EXAMPLES / "estate/mid-phase-two/h2", postgres_server.url)
    assert said.startswith(str(EXAMPLES))
    with psycopg.connect(postgres_server.url) as database:
        found = database.execute("SELECT owner, balance FROM accounts_1 WHERE id = 151").fetchall()
    assert found == [("owner-B151", 162)]
    assert '"transfers_3" 7 rows' in said


def test_the_walk_through_an_incident_ends_with_every_log_safe(tmp_path: Path) -> None:
    """With the packed logs; the real systems are started by a test of `tests.interop`."""
    program = EXAMPLES / "incident/walk.py"
    ran = subprocess.run(
        [sys.executable, str(program), "--packed", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "1 LOSES, 1 REFUSES, 1 CANNOT TELL, 1 SAFE AFTER A CRASH" in ran.stdout
    assert "4 SAFE AFTER A CRASH" in ran.stdout
    assert (tmp_path / "runbook.md").read_text("utf-8").count("XID_") > 0


@pytest.mark.parametrize("name", ["walked", "walked/file"])
def test_the_walk_through_an_incident_takes_an_empty_folder_only(name: str, tmp_path: Path) -> None:
    (tmp_path / "walked").mkdir()
    (tmp_path / "walked/file").write_text("of a walk before")
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "incident/walk.py"), "--packed", str(tmp_path / name)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(str(tmp_path / name))
    assert ran.stderr.count("\n") == 1


ARGUMENTS = dict.fromkeys(GALLERY.keys() - {"key_value_store"}, "FOLDER") | {
    "hornetq_to_artemis": "HORNETQ ARTEMIS",
    "derby_into_duckdb": "LOGS DATABASE",
    "h2_to_postgres": "H2 POSTGRESQL-URL",
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_a_program_without_its_arguments_says_what_it_is_and_how_to_run_it(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.strip().endswith(f"``python examples/{name}.py {ARGUMENTS[name]}``")


def test_the_crash_test_of_the_store_finds_a_snapshot_that_is_not_whole(tmp_path: Path) -> None:
    """The guide says so: with a snapshot that is written in place, an item is lost."""
    text = (EXAMPLES / "key_value_store.py").read_text("utf-8")
    whole = "write_whole(self._fs, self._snapshot, ["
    assert whole in text
    program = tmp_path / "store.py"
    program.write_text(
        text.replace(whole, "in_place(self._fs, self._snapshot, [").replace(
            "class Store:",
            """def in_place(fs: FileSystem, path: str, pieces: list[bytes]) -> None:
    file = fs.open(path) if fs.exists(path) else fs.create(path)
    file.truncate(0)
    file.pwrite(pieces[0], 0)
    file.close()


class Store:""",
        )
    )
    ran = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "recovery failed" in ran.stderr or "acknowledged but lost" in ran.stderr, ran.stderr[
        -800:
    ]


NOTEBOOKS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "investigating": lambda names: len(names["found"].logs) > 10,
    "pipeline": lambda names: names["records"] == names["followed"] == 102,
}
"""What holds at the end of each notebook."""


def run_notebook(name: str) -> bool:
    """Run the cells of a notebook in their order; return whether its end holds."""
    page = json.loads((EXAMPLES / "notebooks" / f"{name}.ipynb").read_text("utf-8"))
    names: dict[str, Any] = {}
    for cell in page["cells"]:
        assert cell.get("outputs", []) == [], "a notebook is kept without outputs"
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    return NOTEBOOKS[name](names)


@pytest.mark.long
def test_the_notebook_about_an_estate_runs_to_its_end() -> None:
    assert run_notebook("investigating")


def test_every_notebook_is_run() -> None:
    assert {one.stem for one in EXAMPLES.glob("notebooks/*.ipynb")} == NOTEBOOKS.keys()
