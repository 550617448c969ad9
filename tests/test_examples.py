"""The small programs of the gallery: short, and each does what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize("name", GALLERY)
def test_a_program_of_the_gallery_does_what_it_says(name: str, tmp_path: Path) -> None:
    program = EXAMPLES / f"{name}.py"
    assert len(program.read_text("utf-8").splitlines()) < LINES_MAX
    for expected in GALLERY[name]:
        command = [sys.executable, "-W", "error", str(program), str(tmp_path)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert re.fullmatch(expected, ran.stdout.strip()), ran.stdout


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


@pytest.mark.parametrize("name", sorted(GALLERY.keys() - {"key_value_store"}))
def test_a_program_that_gets_no_folder_says_what_it_is_and_how_to_run_it(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.strip().endswith(f"``python examples/{name}.py FOLDER``")


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


def test_the_notebook_about_an_estate_runs_to_its_end() -> None:
    assert run_notebook("investigating")


def test_every_notebook_is_run() -> None:
    assert {one.stem for one in EXAMPLES.glob("notebooks/*.ipynb")} == NOTEBOOKS.keys()
