"""Errors are one tree, and print their place and their advice."""

from __future__ import annotations

from tallystick import errors


def test_the_drawn_tree_of_errors_is_the_real_one() -> None:
    drawn = {word for line in (errors.__doc__ or "").splitlines() for word in line.split()}
    defined = {
        name
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, errors.TallystickError)
    }
    assert defined <= drawn


def test_an_error_prints_place_expectation_and_advice() -> None:
    error = errors.CorruptLogError(
        "checksum differs", file="a.log", offset=12, expected="1", found="2", advice="Run verify"
    )
    assert str(error) == ("a.log at offset 12: checksum differs; expected 1; found 2. Run verify")
