"""Errors are one tree, and print their place and their advice."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import tallystick
from tallystick import errors

DEFINED = {
    name
    for name, thing in vars(errors).items()
    if isinstance(thing, type) and issubclass(thing, errors.TallystickError)
}
KINDS = sorted((vars(errors)[name] for name in DEFINED), key=lambda kind: str(kind.__name__))
GUIDE = Path(__file__).parents[1] / "docs" / "guide" / "transactions.md"


def test_the_drawn_tree_of_errors_is_the_real_one() -> None:
    drawn = {word for line in (errors.__doc__ or "").splitlines() for word in line.split()}
    assert drawn >= DEFINED


def test_every_error_is_importable_and_the_guide_says_whether_to_repeat() -> None:
    rows = [line for line in GUIDE.read_text("utf-8").splitlines() if line.startswith("| `")]
    explained = {name for row in rows for name in re.findall(r"`(\w+Error)`", row)}
    assert explained >= DEFINED
    assert set(tallystick.__all__) >= DEFINED


def test_an_error_prints_place_expectation_and_advice() -> None:
    error = errors.CorruptLogError(
        "checksum differs", file="a.log", offset=12, expected="1", found="2", advice="Run verify"
    )
    assert str(error) == ("a.log at offset 12: checksum differs; expected 1; found 2. Run verify")


@pytest.mark.parametrize("made_again", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy])
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_another_process_is_the_same_error(
    kind: type[errors.TallystickError], made_again: Any
) -> None:
    parameters = [*inspect.signature(kind).parameters.values()]
    needed = [one.name for one in parameters if one.default is inspect.Parameter.empty]
    error = kind(*needed)
    found = made_again(error)
    assert (type(found), str(found), found.args) == (kind, str(error), error.args)
    assert vars(found) == vars(error)
