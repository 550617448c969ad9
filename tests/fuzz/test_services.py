"""The fuzzer of services' files and encrypted logs: it finds planted faults, and no others."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from tallystick.services.journal import Journal
from tallystick.services.transactions import coordinator_dir
from tests.fuzz import services
from tests.fuzz.properties import BrokenPropertyError
from tests.fuzz.services import TARGETS

MUTANTS = 40
SOAK_S = 300
EVERY_TARGET = pytest.mark.parametrize("target", TARGETS)


@pytest.mark.long
@pytest.mark.sampled(3)
@EVERY_TARGET
def test_mutants_break_no_property(target: str, tmp_path: Path) -> None:
    files = services.made(target)
    assert services.check(target, files, tmp_path), "what is not damaged cannot be used"
    used = 0
    for seed in range(MUTANTS):
        try:
            used += services.check(target, services.mutant(target, files, seed), tmp_path)
        except BrokenPropertyError as error:
            raise AssertionError(f"mutant {seed}: {error.key}") from error
    assert 0 < used < MUTANTS


@pytest.mark.soak
@EVERY_TARGET
def test_mutants_break_no_property_for_minutes(target: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(31)
    assert services.main(target, str(SOAK_S), str(seed), str(tmp_path)) == 0, os.listdir(tmp_path)  # noqa: PTH208


def _forgets(*_: Any, **__: Any) -> Any:
    return iter(())


def _fails(*_: Any, **__: Any) -> Any:
    raise IndexError("planted")


@pytest.mark.parametrize(
    ("target", "owner", "name", "fault", "text"),
    [
        ("backup", Journal, "replay", _forgets, "is lost"),
        ("sealed-tally", Journal, "replay", _fails, "not documented"),
        ("coordinator", coordinator_dir, "_node", _fails, "not documented"),
    ],
)
def test_a_planted_fault_is_found(
    target: str,
    owner: object,
    name: str,
    fault: Any,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = services.made(target)
    monkeypatch.setattr(owner, name, fault)
    with pytest.raises(BrokenPropertyError) as found:
        services.check(target, files, tmp_path)
    assert text in found.value.key


@pytest.mark.parametrize("target", ["sealed-tally", "sealed-derby"])
def test_what_is_encrypted_is_changed_without_breaking_the_seal(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, inside = services.made(target), TARGETS[target].inside
    assert inside is not None
    monkeypatch.setattr(services, "_damage", lambda *_: None)
    for content in files.values():
        data = bytearray(content)
        inside(data, random.Random(1))
        assert data == content
    monkeypatch.undo()
    before = [bytearray(content) for content in files.values()]
    changed = [bytearray(content) for content in before]
    for one in changed:
        inside(one, random.Random(2))
    assert changed != before
