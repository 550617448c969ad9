"""No answer of ours is proved wrong by what the original does with the same damaged bytes.

Small with the interop tests; with the soak tests as many cases of each system as
TALLYSTICK_CASES says, from the seed TALLYSTICK_SEED on. A contradiction begins with its name, with
which ``python -m tests.interop.differential.cases --only NAME`` repeats it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.interop.differential.around import UNDAMAGED
from tests.interop.differential.cases import BESIDE, SAFE, run, table
from tests.interop.differential.originals import ORIGINALS, OTHERS

SHORT = 20
HEADS = 6
WORKLOADS = 10
SEED = int(os.environ.get("TALLYSTICK_SEED", "1"))
LONG = int(os.environ.get("TALLYSTICK_CASES", "2500"))
PER_WORKLOAD = {"short": 10, "long": 40}


@pytest.mark.sampled(4)
@pytest.mark.interop
@pytest.mark.parametrize("name", ORIGINALS)
def test_no_answer_about_a_damaged_head_is_proved_wrong(name: str, tmp_path: Path) -> None:
    system = ORIGINALS[name]
    for seed in range(SEED, SEED + WORKLOADS):
        cases = list(run(system, seed, HEADS, tmp_path, per_workload=HEADS, how="heads"))
        assert [str(case) for case in cases if case.contradicts] == []
        if all(case.damage.endswith("in a head") for case in cases):
            return
    pytest.fail(f"{WORKLOADS} workloads have no records in their logs as they end")


@pytest.mark.parametrize(
    "size",
    [
        pytest.param("short", marks=pytest.mark.interop),
        pytest.param("long", marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("name", ORIGINALS)
def test_no_answer_is_proved_wrong(name: str, size: str, tmp_path: Path) -> None:
    count = SHORT if size == "short" else LONG
    cases = list(run(ORIGINALS[name], SEED, count, tmp_path, per_workload=PER_WORKLOAD[size]))
    sys.stdout.write(f"seed {SEED}\n{table(cases)}\n")
    assert [str(case) for case in cases if case.contradicts] == []
    assert len(cases) >= count
    assert any(case.answer != SAFE for case in cases)
    if size == "long":
        assert {case.did for case in cases} == {"kept all", "lost rows", "refused"}


@pytest.mark.sampled(4)
@pytest.mark.interop
@pytest.mark.parametrize("name", ["derby-full", "h2-1.3.176-full", "h2-1.4.200-full"])
def test_a_disk_that_is_full_at_once_leaves_an_earlier_state(name: str, tmp_path: Path) -> None:
    """By this seed none of them comes to the transaction before which that is copied."""
    whole = OTHERS[name].make(tmp_path / "work", 771203)
    states = [whole.older, whole.older.with_name("older-seg0")][: 1 + name.startswith("derby")]
    assert all(any(one.iterdir()) for one in states)


BESIDES = [*(name for name in ORIGINALS if name not in ("artemis", "hornetq")), *OTHERS]


@pytest.mark.soak
@pytest.mark.parametrize("name", BESIDES)
def test_no_answer_about_what_lies_beside_a_log_is_proved_wrong(name: str, tmp_path: Path) -> None:
    """A log without any change fits every state of a database: see docs/verdicts.md."""
    system = (ORIGINALS | OTHERS)[name]
    cases = list(run(system, SEED, LONG, tmp_path, per_workload=12, how=BESIDE))
    sys.stdout.write(f"seed {SEED}\n{table(cases)}\n")
    assert [str(case) for case in cases if case.is_wrong] == []
    undamaged = [case for case in cases if case.damage == UNDAMAGED]
    doubtful = [str(case) for case in undamaged if case.answer != SAFE]
    assert len(doubtful) <= len(undamaged) / 20, doubtful
