"""Sweeps: a sample is part of the whole, and the parts are the whole, each case once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sweeps import PARTS, Sweep, is_run, part_of
from tests.times import summary

ROOT = Path(__file__).parents[1]

TESTS = """
import pytest

def test_always(): ...

def test_sweep(sweep): ...

@pytest.mark.soak
def test_hours(): ...

@pytest.mark.turns
@pytest.mark.parametrize("seed", range(100))
def test_seeds(seed): ...

@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", range(20))
def test_cases(case): ...
"""


@pytest.mark.parametrize("count", [0, 1, 6, 7, 100])
def test_the_parts_of_a_sweep_are_its_cases_each_once(count: int) -> None:
    parts = [Sweep(part).of(range(count), 3) for part in range(1, PARTS + 1)]
    assert sorted(case for part in parts for case in part) == list(range(count))


@pytest.mark.parametrize("sample", [0, 3, 20, 30])
def test_a_sample_is_the_same_in_one_run_and_in_the_order_of_the_cases(sample: int) -> None:
    cases = list(range(20))
    chosen = Sweep().of(cases, sample)
    assert chosen == sorted(set(chosen)) == Sweep().of(cases, sample)
    assert len(chosen) == min(sample, 20)


def collected(folder: Path, *options: str) -> set[str]:
    (folder / "test_it.py").write_text(TESTS)
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-qc/dev/null", f"--rootdir={folder}",
         "-p", "tests.sweeps", "-p", "no:cacheprovider", *options, folder],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return {line.partition("::")[2] for line in answer.stdout.splitlines() if "::" in line}


def test_a_turn_leaves_out_the_other_parts_of_what_is_in_turns_and_nothing_else(
    tmp_path: Path,
) -> None:
    parts = {f"test_sweep[part{part}of7]" for part in range(1, 8)}
    seeds = {f"test_seeds[{seed}]" for seed in range(100)}
    always = {"test_sweep[sample]", "test_always", "test_hours"}
    cases = {f"test_cases[{case}]" for case in range(20)}
    assert collected(tmp_path) == always | parts | seeds | cases
    sample = collected(tmp_path, "-m", "not soak and not turns") - always
    assert len(sample) == 3
    assert sample < cases
    always |= sample
    seeds |= cases - sample
    turn = collected(tmp_path, "--turn", "3")
    assert turn - seeds == always | {"test_sweep[part3of7]"}
    assert 0 < len(turn & seeds) < 50
    assert len(collected(tmp_path, "--turn", "today") & parts) == 1


@pytest.mark.parametrize(
    ("marks", "turns"), [([], 7), (["long"], 1), (["turns"], 1), (["long", "turns"], 1)]
)
def test_what_takes_long_or_is_in_no_sample_is_in_one_of_seven_turns_and_they_are_alike(
    marks: list[str], turns: int
) -> None:
    items: list[Any] = [
        SimpleNamespace(nodeid=str(number), get_closest_marker=marks.__contains__)
        for number in range(700)
    ]
    run = [{one.nodeid for one in items if is_run(one, turn)} for turn in range(1, PARTS + 1)]
    assert set(Counter(chain.from_iterable(run)).values()) == {turns}
    assert all(abs(len(one) - 100 * turns) < 50 for one in run)


@pytest.mark.parametrize("name", ["a", "b", "tests/test_it.py::test_seeds[7]"])
def test_what_is_no_sweep_belongs_to_one_part_by_its_name(name: str) -> None:
    item: Any = SimpleNamespace(nodeid=name, get_closest_marker=lambda _: None)
    assert part_of(item) in range(1, PARTS + 1)
    assert part_of(item) == part_of(item)


def test_what_takes_minutes_says_its_part(request: pytest.FixtureRequest) -> None:
    request.node.add_marker(pytest.mark.long(4))
    assert part_of(request.node) == 4


def test_a_sweep_is_collected_as_a_sample_and_in_parts(sweep: Sweep) -> None:
    assert len(sweep.of(range(70), 5)) == (5 if sweep.part is None else 10)


async def test_a_coroutine_function_is_run(tmp_path: Path) -> None:
    assert tmp_path.is_dir()


def test_the_slowest_tests_are_named_with_the_time_of_all_their_phases() -> None:
    phases = [
        ("fast", 1.0, "passed", 9.0),
        ("slow", 2.0, None, 2.0),
        ("slow", 3.0, "passed", 4.0),
        ("no", 0, "skipped", 0),
    ]
    lines = summary([json.dumps(phase) for phase in phases]).splitlines()
    assert [line.split() for line in lines[1:3]] == [["5.0", "s", "slow"], ["1.0", "s", "fast"]]
    waited = lines.index("Those that waited longest, for disks, servers and others:")
    assert [line.split() for line in lines[waited + 1 : waited + 3]] == [
        ["8.0", "s", "fast"],
        ["1.0", "s", "slow"],
    ]
    assert lines[-1] == "2 passed, 1 skipped in 6 s of processors, 9 s waited"
