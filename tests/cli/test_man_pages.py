"""Manual pages are made of the commands: each has one, with all of its options."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import click
import pytest

from tallystick.cli import tallystick

SCRIPTS = Path(__file__).parents[2] / "scripts"
PAGES: dict[str, str] = runpy.run_path(str(SCRIPTS / "man_pages.py"))["pages"]()
ROFF: Callable[[str], str] = runpy.run_path(str(SCRIPTS / "man_pages.py"))["roff"]


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from _commands(found, f"{name}-{below}")


COMMANDS = dict(_commands(tallystick, "tallystick"))


def test_every_command_has_a_page_and_every_page_a_command() -> None:
    assert set(PAGES) == {f"{name}.1" for name in COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_has_every_option_and_what_the_help_says(name: str) -> None:
    page, command = PAGES[f"{name}.1"], COMMANDS[name]
    options = [one for one in command.params if isinstance(one, click.Option)]
    for option in options:
        assert all(ROFF(spelled) in page for spelled in option.opts), option.name
        assert option.help is None or ROFF(option.help) in page
    for paragraph in (command.help or "").split("\n\n"):
        assert ROFF(" ".join(paragraph.split())) in page
    if isinstance(command, click.Group):
        assert all(
            f"{ROFF(name)}\\-{below}" in page
            for below in command.list_commands(click.Context(command))
        )


def test_text_is_shown_as_it_is_and_never_obeyed() -> None:
    assert ROFF(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert ROFF("--to 'a\\b'") == "\\-\\-to \\(aqa\\eb\\(aq"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not there")
def test_roff_reads_every_page_without_a_warning() -> None:
    command = ["groff", "-man", "-Tutf8", "-ww"]
    everything = "".join(PAGES.values())
    ran = subprocess.run(command, input=everything, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_pages_that_were_made_come_into_the_distributions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str
) -> None:
    """Hatchling is there only while a distribution is built."""
    path = "hatchling.builders.hooks.plugin.interface"
    interface = ModuleType(path)
    interface.BuildHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, path, interface)
    hook: Any = runpy.run_path(str(SCRIPTS / "man_hook.py"))["ManPages"]
    data: dict[str, dict[str, str]] = {"shared_data": {}, "force_include": {}}
    made = tmp_path / "build/man"
    for _ in range(2):  # none at first
        self = SimpleNamespace(root=str(tmp_path), target_name=target)
        hook.initialize(self, "standard", data)
        made.mkdir(parents=True, exist_ok=True)
        (made / "tallystick.1").write_text("page")
    kept, folder = {
        "wheel": ("shared_data", "share/man/man1"), "sdist": ("force_include", "build/man")
    }[target]  # fmt: skip
    assert data.pop(kept) == {str(made / "tallystick.1"): f"{folder}/tallystick.1"}
    assert not any(data.values())
