"""Where a command is told to write: nothing is written over that is not meant, or left half."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Answer, Run
from tests.indoubt.estates import EXAMPLES
from tests.rescue.kit import case, content, limited_file_size, unpacked

FOLDERS = {
    "repair": ("repair", "orphan/damaged", "--to"),
    "h2-script": ("salvage", "orphan/h2", "--as", "h2-script", "--to"),
    "derby-import": ("salvage", "orphan/derby", "--as", "derby-import", "--to"),
    "parquet": ("salvage", "orphan/derby", "--as", "parquet", "--to"),
    "journal": ("salvage", "orphan/artemis", "--as", "journal", "--to"),
    "convert": ("convert", "--to", "tally", "orphan/bitronix"),
    "demo": ("demo",),
}
"""Commands that make a copy under a new name."""
FILES = {
    "bundle": ("bundle", "orphan/derby", "-o"),
    "export": ("export", "orphan/bitronix", "--to", "jsonl", "-o"),
    "rows": ("rows", "orphan/derby", "--to", "csv", "-o"),
    "undo": ("undo", "orphan/derby", "--transaction", "218", "-o"),
    "sql": ("sql", "orphan/derby", "SELECT * FROM records", "--to", "csv", "-o"),
}
"""Commands that write one file, over an older one."""
COMMANDS = FOLDERS | FILES


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logs, a file, a full and an empty folder, and links."""
    unpacked(EXAMPLES / "orphan", tmp_path / "orphan")
    case("bitronix", "rollover-1", tmp_path / "orphan/damaged")
    (tmp_path / "file").write_text("of somebody")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("of somebody")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("orphan")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def log_of(name: str) -> str:
    return next((one for one in COMMANDS[name] if one.startswith("orphan/")), "orphan/derby")


TARGETS: dict[str, tuple[Callable[[str], str], str]] = {
    "a file": (lambda _: "file", "exist|no folder|not empty"),
    "a full folder": (lambda _: "full", "exist|not empty|is a directory"),
    "an empty folder": (lambda _: "empty", "exist|is a directory"),
    "in the log": (lambda log: f"{log}/new", "inside|among"),
    "in the log, by a link": (lambda log: f"link/{log.partition('/')[2]}/new", "inside|among"),
    "the log": (lambda log: log, "exist|inside|is a directory"),
    "above the log": (lambda _: "orphan", "exist|not empty|is a directory"),
    "in no folder": (lambda _: "none/deep/new", "folder of the|No such file"),
}
DONE = {
    *((name, "a file") for name in FILES),
    ("convert", "an empty folder"), ("convert", "in no folder"),
    ("demo", "in the log"), ("demo", "in the log, by a link"),
}  # fmt: skip
"""What is done: a file is written anew, and a new log goes where it finds room."""


def sentences(answer: Answer) -> list[str]:
    """Return what is said of an error, and not that code is compiled meanwhile."""
    return [line for line in answer.err.splitlines() if ": compiling " not in line]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("where", TARGETS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_target_that_cannot_be_meant_is_refused_in_a_sentence(
    run: Run, place: Path, name: str, where: str
) -> None:
    target, said = TARGETS[where]
    before = content(place)
    answer = run(*COMMANDS[name], target(log_of(name)))
    after = content(place)
    if (name, where) in DONE:
        assert answer.code in (0, 1), answer
        kept = {path: data for path, data in before.items() if path != "file"}
        assert kept.items() <= after.items()
        return
    assert (answer.code, answer.out, after) == (2, "", before)
    message = answer.err.splitlines()[-1]
    assert any(words in message for words in said.split("|")), message


@pytest.mark.sampled(13)
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("target", ["new", "file", "none/new"])
def test_a_disk_that_fills_leaves_nothing_half_written(
    run: Run, place: Path, name: str, target: str
) -> None:
    before, folders = content(place), {*place.rglob("*")}
    with limited_file_size(64):
        answer = run(*COMMANDS[name], str(place / target))
    assert (answer.code, answer.out) == (2, "")
    assert f"{place / target}" in answer.err
    assert (".unfinished" in answer.err, ".partial" in answer.err) == (False, False)
    assert name == "convert" or "onvert" not in answer.err  # `journal` is made by it
    if target == "new":
        assert len(sentences(answer)) == 1
    assert (content(place), {*place.rglob("*")}) == (before, folders)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_that_cannot_be_written_is_told_with_the_target(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before, new, opened = content(place), str(place / "new"), os.open

    def refuse(path: str | Path, *_arguments: object, **_named: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(path))

    def refuse_new(path: str | Path, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_CREAT and str(path).startswith(new):
            refuse(path)
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr(os, "mkdir", refuse)
    monkeypatch.setattr(os, "open", refuse_new)
    answer = run(*COMMANDS[name], new)
    assert (answer.code, content(place)) == (2, before)
    (said,) = sentences(answer)
    assert said.startswith(tuple(f"tallystick: {new}{end}" for end in (":", "/", ".conv")))
    assert "Read-only file system" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dash_is_standard_output_or_refused_and_never_a_file(
    run: Run, place: Path, name: str
) -> None:
    before = content(place)
    answer = run(*COMMANDS[name], "-")
    if name in FILES.keys() - {"bundle"}:
        assert answer == run(*COMMANDS[name][:-1])
        assert (answer.code, bool(answer.out)) == (0, True)
    else:
        assert (answer.code, answer.out) == (2, "")
        assert "nothing of it goes to standard output" in answer.err
    assert content(place) == before
