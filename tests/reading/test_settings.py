"""A setting whose name no system found there knows is refused, not ignored."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.cli import main
from tallystick.errors import UnsupportedFormatError
from tallystick.reading import explain, inspect, scan, verify
from tallystick.systems.jboss.read.generations import GENERATIONS
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.registry import systems
from tests.fixtures import fixture_dir
from tests.systems.jboss.build import add, image, write


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    write(tmp_path, "g3", {1: image("g3", 1, [add(1)])})
    return tmp_path


@pytest.mark.parametrize("read", [explain, inspect, verify, lambda *a, **b: list(scan(*a, **b))])
def test_an_unknown_setting_is_refused(journal: Path, read: Callable[..., object]) -> None:
    read(journal, options=ReadOptions(settings={"file_size": "1024"}))
    with pytest.raises(UnsupportedFormatError, match="disk_block_size") as refused:
        read(journal, options=ReadOptions(settings={"disk_block_size": "512"}))
    assert "file_size" in (refused.value.expected or "")


def test_the_command_line_names_it(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", str(journal), "--set", "flie_size=1024"])
    assert ended.value.code not in (0, None)
    assert "flie_size" in "".join(capsys.readouterr())


def test_where_no_log_is_found_no_setting_is_wrong(tmp_path: Path) -> None:
    answer = explain(tmp_path, options=ReadOptions(settings={"any": "1"}))
    assert [one.code for one in answer.problems] == ["no-log"]


def _derby(folder: Path) -> Path:
    return Path(shutil.copytree(fixture_dir("derby") / "halted", folder))


VALUES = {
    "derby_version": (
        ["10.14", "10.14.2", "10.16.1.1"],
        ["banana", "10", "", "10.x", "-1.2", "10."],
    ),
    "dataEncryption": (["true", "FALSE"], ["yes"]),
    "encryptionAlgorithm": (["AES", "DES/CBC/NoPadding"], ["ROT13"]),
    "encryptionKeyLength": (["128", "128-16"], ["long", "128-"]),
    "encryptedBootPassword": (["00ff-12"], ["00ff", "xx-1"]),
    "derby.encryptionBlockSize": (["8", "16"], ["12"]),
    "derby.storage.fileSyncTransactionLog": (["true"], ["banana"]),
    "derby.storage.logSwitchInterval": (["1048576"], ["1 MB", "-1"]),
    "h2.calendar": (["julian"], ["gregorian", "JULIAN"]),
    "signature": (["0f" * 64], ["0f", "x" * 128]),
    "disk_block_size": (["512", "65536"], ["500", "131072"]),
    "max_transaction_size": (["1048576"], ["many"]),
    "user_version": (["0", "-1"], ["one"]),
    "file_size": (["1024"], ["1k"]),
    "generation": ([*GENERATIONS], ["g9"]),
}


def test_every_setting_has_a_form_that_is_told_and_tried() -> None:
    of_all = {name: form for one in systems() for name, form in one.setting_values.items()}
    assert of_all.keys() == VALUES.keys() == {name for one in systems() for name in one.settings}
    for name, (right, wrong) in VALUES.items():
        pattern, words = of_all[name]
        assert words
        for value in right:
            assert re.fullmatch(pattern, value, re.ASCII), (name, value)
        for value in wrong:
            assert not re.fullmatch(pattern, value, re.ASCII), (name, value)


@pytest.mark.parametrize("command", ["explain", "triage", "verify", "inspect", "dump", "rows"])
@pytest.mark.parametrize("value", VALUES["derby_version"][1])
def test_a_value_that_means_nothing_is_refused(
    value: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, str(_derby(tmp_path / "db")), "--set", f"derby_version={value}"])
    assert ended.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "the setting derby_version has no such value" in said
    assert "expected a version of Derby, as 10.14 or 10.14.2" in said


def test_a_wrong_value_is_not_repeated(tmp_path: Path) -> None:
    settings = {"encryptedBootPassword": "my-secret"}
    with pytest.raises(UnsupportedFormatError, match="hex digits, a dash") as refused:
        explain(_derby(tmp_path / "db"), options=ReadOptions(settings=settings))
    assert "my-secret" not in str(refused.value)
