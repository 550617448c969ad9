"""The sentence that stands first under a log is true, whatever state the log is in."""

from __future__ import annotations

import pytest

import tallystick
from tallystick.answers import headline
from tallystick.systems.base import ReadOptions
from tests.fixtures import fixture_dir


def sentence(system: str, case: str) -> str:
    (verdict,) = tallystick.explain(str(fixture_dir(system) / case), options=ReadOptions()).logs
    return headline(verdict)


@pytest.mark.parametrize(
    ("system", "case"),
    [
        ("bitronix", "damaged-name-length-huge"),
        ("bitronix", "damaged-empty-both"),
        ("h2", "truncated-2048"),
    ],
)
def test_a_system_that_would_not_start_is_said_not_to(system: str, case: str) -> None:
    assert sentence(system, case).startswith("A restart would fail. ")


def test_nothing_is_promised_of_an_encrypted_log_without_its_key() -> None:
    said = sentence("derby", "encrypted-aes-external-key")
    assert "cannot be told" in said
    assert "nothing" not in said


def test_a_sound_log_loses_nothing() -> None:
    assert sentence("bitronix", "committed-2pc").endswith("and lose nothing silently.")
