"""Whole databases that the real Derby has left, and copies of them with other parts."""

from __future__ import annotations

import shutil
from pathlib import Path

import tallystick
from tallystick.records import Answer, Part, Verdict
from tests.fixtures import fixture_dir


def database(case: str) -> Path:
    """The database of a case. Never write below it."""
    return fixture_dir("derby_databases") / case


def copied(case: str, folder: Path) -> Path:
    """A copy of it in a new folder."""
    return Path(shutil.copytree(database(case), folder / "db"))


def killed(folder: Path) -> Path:
    """A database that its own engine has just left by a kill, with all that belongs to it."""
    copy = copied("service.properties-missing", folder)
    shutil.copy(database("table-file-missing") / "service.properties", copy)
    return copy


def verdict_of(path: Path) -> Verdict:
    """The verdict of the one log below the path."""
    (found,) = tallystick.explain(path).logs
    return found


def odd_parts(found: Verdict) -> list[Part]:
    """The parts from which anything follows."""
    assert found.surroundings is not None
    return [one for one in found.surroundings.parts if one.answer is not Answer.SAFE]
