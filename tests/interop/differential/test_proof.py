"""How the whole comparison goes on and counts; no original is needed for that."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop.differential import proof
from tests.interop.differential.around import UNDAMAGED
from tests.interop.differential.cases import CANNOT_TELL, LOSES, SAFE, Case, kinds_of
from tests.interop.differential.originals import ORIGINALS, OTHERS, Original
from tests.interop.differential.proof import SYSTEMS, WORKLOADS, due, is_full, kept, summary

BITRONIX, NARAYANA = ORIGINALS["bitronix"], OTHERS["narayana"]


def case(system: str, workload: int, damage: str, answer: str = SAFE, lost: int = 0) -> Case:
    return Case(system, workload, 1, damage, answer, True, 9, lost, 0, "", "")


def test_at_least_eight_originals_have_ten_kinds() -> None:
    assert sum(len(kinds_of((ORIGINALS | OTHERS)[name])) >= 10 for name in SYSTEMS) >= 8


def test_cases_that_were_written_are_read_again(tmp_path: Path) -> None:
    cases = [case("narayana", 1, "state cut"), case("derby", 2, UNDAMAGED, CANNOT_TELL)]
    assert kept(tmp_path) == []
    lines = (json.dumps(dataclasses.asdict(one)) for one in cases)
    (tmp_path / "cases.jsonl").write_text("\n".join(lines))
    assert kept(tmp_path) == cases


@pytest.mark.parametrize(("least", "full"), [(1, True), (2, False)])
def test_a_system_is_full_when_each_of_its_cells_is(least: int, full: bool) -> None:
    cases = [case("bitronix", 1, one) for one in (UNDAMAGED, "a", "b", "b")]
    assert is_full("bitronix", ["a", "b"], [*cases, case("derby", 1, "a")], least) is full
    assert not is_full("bitronix", ["a", "c"], cases, 1)


def test_systems_take_turns_and_go_on_after_what_has_run() -> None:
    cases = [case("bitronix", 7 + WORKLOADS - 1, "files exchanged")]
    found = due([BITRONIX, NARAYANA], cases, 7, 1)
    assert next(found) == (NARAYANA, 7)
    assert next(found) == (BITRONIX, 7 + WORKLOADS)
    cases += [case("narayana", 7, one) for one in (UNDAMAGED, *kinds_of(NARAYANA))]
    assert next(found) == (BITRONIX, 7 + 2 * WORKLOADS)
    cases += [case("bitronix", 7, one) for one in (UNDAMAGED, *kinds_of(BITRONIX))]
    assert list(found) == []


def test_rounds_do_not_meet_what_others_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = list[list[str]]()

    def run(system: Original, first: int, count: int, work: Path, **more: Any) -> list[Case]:
        (work / f"{system.name}-another").mkdir(parents=True)
        (work / f"{system.name}-{first}-1-judged").mkdir()
        known.append(list(more["before"]))
        return [case(system.name, first, "a")] * count

    monkeypatch.setattr(proof, "run", run)
    (tmp_path / "work/bitronix-another").mkdir(parents=True)
    cases = [case("narayana", 1, "b")]
    for first in (1, 5):
        cases += proof.ran(BITRONIX, first, tmp_path, cases)
    assert known == [[], ["a"] * (len(cases) // 2)]
    assert {one.name for one in tmp_path.iterdir()} == {
        "bitronix-1-1-judged",
        "bitronix-5-1-judged",
    }


def test_a_line_tells_what_is_wrong_and_what_was_not_damaged() -> None:
    cases = [
        case("derby", 1, UNDAMAGED, CANNOT_TELL),
        case("derby", 1, UNDAMAGED),
        case("derby", 1, "page zeroed", SAFE, lost=1),
        case("derby", 1, "bit of a page", LOSES),
    ]
    assert summary(cases).splitlines()[2:] == ["| derby | 4 | 2 | 1 | 1 | 1 | 0 | 0 | 2 | 1 |"]
