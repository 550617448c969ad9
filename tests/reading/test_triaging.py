"""Triage: gravest first, one command per log that a shell takes as it stands."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import tallystick
from tallystick.printable import shell_quoted
from tests.fixtures import fixture_dir

CASES = {
    "lost": ("h2", "corrupt-checksum-2048", "loses"),
    "stuck": ("bitronix", "damaged-hole", "refuses"),
    "sealed": ("derby", "encrypted-aes-external-key", "cannot-tell"),
    "prepared": ("h2", "indoubt-many-512", "safe"),
    "closed": ("bitronix", "committed-2pc", "safe"),
}


@pytest.fixture(scope="module")
def estate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("an estate")
    for name, (system, case, _) in CASES.items():
        shutil.copytree(fixture_dir(system) / case, root / name)
    return root


def test_the_gravest_log_stands_first(estate: Path) -> None:
    answer = tallystick.triage(estate)
    names = [Path(one.path).relative_to(estate).parts[0] for one in answer.logs]
    assert names == list(CASES)
    assert [one.judgement.answer.value for one in answer.logs] == [row[2] for row in CASES.values()]
    assert answer.exit_code == 1
    stake = json.loads(json.dumps(answer.to_dict()))["logs"][0]["at_stake"]
    assert stake == {"transactions": None, "rows": None}  # what its damaged page held is not known


def test_each_log_has_one_command_that_names_it(estate: Path) -> None:
    words = {}
    for one in tallystick.triage(estate).logs:
        *command, path = shlex.split(one.command)
        waits = one.in_doubt and one.judgement.answer.value == "safe"
        assert path == (str(estate) if waits else one.path)  # what waits concerns all logs
        words[Path(one.path).relative_to(estate).parts[0]] = " ".join(command)
    assert words == {
        "lost": "tallystick explain",
        "stuck": "tallystick explain",
        "sealed": "tallystick explain --boot-password SECRET",
        "prepared": "tallystick indoubt list",
        "closed": "tallystick inspect",
    }


def test_it_agrees_with_explain(estate: Path) -> None:
    explained = {one.path: one.judgement for one in tallystick.explain(estate).logs}
    assert {one.path: one.judgement for one in tallystick.triage(estate).logs} == explained


def test_the_tables_logs_and_files_say_the_same(estate: Path) -> None:
    rows = tallystick.read_arrow(estate, "logs").read_all().to_pylist()
    stated = {row["log"]: (row["answer"], row["reason"], row["after_crash"]) for row in rows}
    triaged = {
        one.path: (one.judgement.answer.value, one.judgement.reason, one.judgement.after_crash)
        for one in tallystick.triage(estate).logs
    }
    assert stated == triaged
    assert {row["transactions_at_stake"] for row in rows} >= {0, 7, None}
    for row in tallystick.read_arrow(estate, "files").read_all().to_pylist():
        assert row["answer"] == stated[row["log"]][0]


def test_it_exits_with_0_only_if_every_log_is_safe_and_its_verdicts_agree(
    estate: Path, tmp_path: Path
) -> None:
    for name, code in (("closed", 0), ("prepared", 1), ("sealed", 1)):
        assert tallystick.triage(estate / name).exit_code == code
        assert tallystick.explain(estate / name).exit_code == code
    assert tallystick.triage(tmp_path).exit_code == 2


@pytest.mark.parametrize("name", ["plain", "two words", "it's", "-x", "a\nb\x1b[31m", "é\\'\t"])
def test_a_path_is_quoted_so_that_a_shell_gives_it_back(name: str) -> None:
    quoted = shell_quoted(name)
    assert quoted.isprintable()
    given = subprocess.run(
        ["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True
    ).stdout
    assert given.decode().removeprefix("./") == name


def _gone_device(database: Path) -> None:
    properties = database / "service.properties"
    properties.write_text(f"logDevice=/nowhere/at/all\n{properties.read_text()}")
    shutil.rmtree(database / "log")


def _dangling(database: Path) -> None:
    shutil.rmtree(database / "log")
    (database / "log").symlink_to("gone")


@pytest.mark.parametrize(
    "change", [_gone_device, _dangling, lambda one: shutil.rmtree(one / "log")]
)
def test_a_command_names_a_path_that_is_there(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    database = tmp_path / "db"
    shutil.copytree(fixture_dir("derby_databases") / "page-older-than-log", database)
    change(database)
    (one,) = tallystick.triage(tmp_path).logs
    assert one.path == str(database)
    assert one.command == f"tallystick explain {database}"
    assert tallystick.explain(database).logs[0].judgement == one.judgement
