"""Brokers that were killed or stopped, and nothing else, are safe: an answer in doubt is rare.

Small with the interop tests, where three brokers show no share: none is called lost, and not
several are in doubt. With the soak tests as many brokers of each system as TALLYSTICK_CASES says,
from the seed TALLYSTICK_SEED on, and the shares.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

import tallystick
from tallystick.records import Answer
from tests.interop.broker.lives import BROKERS, lived, way

SEED = int(os.environ.get("TALLYSTICK_SEED", "1"))
LONG = int(os.environ.get("TALLYSTICK_CASES", "60"))
MOST_IN_DOUBT = 0.02
MOST_OF_A_WAY = 0.05


@pytest.mark.parametrize("name", BROKERS)
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(3, id="short", marks=pytest.mark.interop),
        pytest.param(LONG, id="long", marks=pytest.mark.soak),
    ],
)
def test_a_broker_as_a_kill_or_a_stop_leaves_it_is_safe(
    name: str, count: int, tmp_path: Path
) -> None:
    answers: dict[str, Counter[str]] = {}
    for seed in range(SEED, SEED + count):
        data = tmp_path / "data"
        ends = lived(name, data, seed)
        (broker,) = tallystick.explain(data).databases
        found = broker.judgement
        assert found.answer in (Answer.SAFE, Answer.CANNOT_TELL), f"{name}:{seed} {ends}: {found}"
        answers.setdefault(way(ends), Counter())[found.answer.value] += 1
        if found.answer is not Answer.SAFE:
            sys.stdout.write(f"{name}:{seed} {ends}: {found.reason}\n")
        shutil.rmtree(data)
    sys.stdout.write(f"{name}, seed {SEED}: {answers}\n")
    every = sum(answers.values(), Counter[str]())
    assert every[Answer.CANNOT_TELL.value] <= max(MOST_IN_DOUBT * count, 1)
    for of_a_way in answers.values():
        in_doubt = of_a_way[Answer.CANNOT_TELL.value]
        assert in_doubt <= max(MOST_OF_A_WAY * of_a_way.total(), 1)
