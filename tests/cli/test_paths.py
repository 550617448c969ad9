"""A folder is the same one however it is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import tallystick
from tests.cli.conftest import Run
from tests.indoubt.estates import EXAMPLES

COMMANDS = (
    ("triage", "--json"),
    ("explain", "--json"),
    ("inspect", "--json"),
    ("verify", "--json"),
    ("indoubt", "list", "--json"),
    ("backlog", "--json"),
)
SPELLINGS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "dot": (".", lambda _: "."),
    "trailing slash": ("..", lambda folder: f"{folder.name}/"),
    "dot slash": ("..", lambda folder: f"./{folder.name}"),
    "doubled": ("..", lambda folder: f".//{folder.name}//."),
    "up and down": (".", lambda folder: f"../{folder.name}"),
    "link": (".", lambda folder: f"{folder.parent}/link"),
    "bare name": ("..", lambda folder: folder.name),
}
_TOLD = re.compile(r'"(?:answer|code|reason|severity|system|resolution|exit)": *"([^"]*)"')


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a coordinator that has decided for two journals beside it."""
    folder = tmp_path_factory.mktemp("estate") / "coordinator"
    with (
        tallystick.Journal(folder.parent / "a") as one,
        tallystick.Journal(folder.parent / "b") as other,
        tallystick.TransactionManager(folder, {"a": one, "b": other}) as manager,
    ):
        manager.recover()
        with manager.begin() as tx:
            tx["a"].add(1, b"one")
            tx["b"].add(1, b"one")
    return folder


def _told(run: Run, command: tuple[str, ...], path: str) -> tuple[int, list[str]]:
    answer = run(*command, path)
    return answer.code, sorted(_TOLD.findall(answer.out))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("part", ["coordinator", "decisions", "estate", "example"])
def test_a_relative_path_gives_the_answers_of_the_absolute_one(
    run: Run, coordinator: Path, command: tuple[str, ...], part: str,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    folder = {
        "coordinator": coordinator, "decisions": coordinator / "decisions",
        "estate": coordinator.parent, "example": EXAMPLES / "mid-phase-two",
    }[part]  # fmt: skip
    want = _told(run, command, str(folder))
    assert want[1] or command[0] in ("verify", "backlog", "indoubt")
    (tmp_path / "link").symlink_to(folder)
    for name, (where, spelled) in SPELLINGS.items():
        monkeypatch.chdir(folder / where)
        path = str(tmp_path / "link") if name == "link" else spelled(folder)
        assert _told(run, command, path) == want, name
