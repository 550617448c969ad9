"""The sentence that stands first under a log is true, whatever state the log is in."""

from __future__ import annotations

import pytest

import tallystick
from tallystick.answers import headline
from tests.fixtures import fixture_dir


def sentence(system: str, case: str) -> str:
    answer = tallystick.explain(str(fixture_dir(system) / case))
    (verdict,), (findings,) = answer.logs, answer.findings
    return headline(verdict, findings)


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


def test_a_loss_that_a_restart_does_not_add_to_is_not_passed_over() -> None:
    said = sentence("jboss", "g3-artemis-main/missing-first-file")
    assert said.endswith("and lose nothing beyond what is lost already.")
