"""``tallystick demo``: what a newcomer sees first."""

from __future__ import annotations

import filecmp
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tallystick
from tests.cli.conftest import Run
from tests.indoubt.estates import EXAMPLES


def test_the_demo_writes_the_estate_and_walks_through_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = run("demo", "here")
    assert answer.code == 0
    assert filecmp.dircmp(EXAMPLES, "here").left_list == filecmp.dircmp(EXAMPLES, "here").right_list
    for words in ("$ tallystick triage here", "$ tallystick indoubt list here", "lost"):
        assert words in answer.out
    assert "  tallystick runbook here" in answer.out.splitlines()


def test_the_demo_overwrites_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for taken in (tmp_path, tmp_path / "mine"):
        answer = run("demo", str(taken))
        assert (answer.code, answer.out) == (2, "")
        assert "exists; name a folder that does not" in answer.err
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]


def test_the_demo_writes_the_estate_of_a_package_that_is_a_zip(tmp_path: Path) -> None:
    package, wheel = Path(tallystick.__file__).parent, tmp_path / "tallystick.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for folder, name in ((package, "tallystick"), (EXAMPLES, "tallystick/cli/estate")):
            for one in folder.rglob("*"):
                path = f"{name}/{one.relative_to(folder)}"  # an installed package has the estate
                if (
                    one.is_file()
                    and "__pycache__" not in one.parts
                    and path not in packed.NameToInfo
                ):
                    packed.write(one, path)
    answer = subprocess.run(
        [sys.executable, "-m", "tallystick", "demo", "here"],
        env=os.environ | {"PYTHONPATH": str(wheel)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    compared = filecmp.dircmp(EXAMPLES, tmp_path / "here")
    assert (compared.left_only, compared.right_only) == ([], [])
