"""Which part of a long list of cases a run goes through.

A plugin of pytest. Of a test that is marked ``sampled(N)``, so many cases are run at a time,
chosen by the seed of the run; all others are marked ``turns``. A test that goes through cases by
itself asks for `sweep`; it is collected once as a sample, and once for each of seven parts of the
whole, which are marked ``turns``:

* ``make test`` runs the samples
* each landing runs a seventh more, that of the day (``--turn today``), of all that is in ``turns``
  or ``long``
* ``make nightly`` runs all parts, as does ``make soak``: what is in ``turns`` is ``soak``, too

What is no sweep belongs to one of the parts by its name, or by ``long(PART)``: what takes minutes
is not run on the same day.
"""

from __future__ import annotations

import os
import random
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final, TypeVar

import pytest

PARTS: Final = 7
SEED: Final = int(os.environ.get("TALLYSTICK_SEED") or date.today().toordinal())

IN_TURNS: Final = [pytest.mark.soak, pytest.mark.turns]

Case = TypeVar("Case")


@dataclass(frozen=True)
class Sweep:
    """The part of a list of cases that a test goes through; without a number a sample."""

    part: int | None = None

    def of(self, cases: Sequence[Case], sample: int) -> list[Case]:
        """Return the cases of this part, or as many as ``sample`` says, in their order."""
        if self.part is not None:
            return list(cases[self.part - 1 :: PARTS])
        print(f"TALLYSTICK_SEED={SEED} chooses the same sample again")  # noqa: T201 - if it fails
        return _sample(cases, sample)


def _sample(cases: Sequence[Case], count: int, name: str = "") -> list[Case]:
    """Return some of the cases, in their order; of another name others."""
    chance = random.Random(f"{SEED} {name}")
    return [
        cases[index] for index in sorted(chance.sample(range(len(cases)), min(count, len(cases))))
    ]


def part_of(item: pytest.Item) -> int:
    """Return the part of seven that an item belongs to: that of its sweep, or one by its name."""
    parameters = getattr(item, "callspec", None) and item.callspec.params  # type: ignore[attr-defined]
    sweep = (parameters or {}).get("sweep")
    if isinstance(sweep, Sweep) and sweep.part is not None:
        return sweep.part
    if given := getattr(item.get_closest_marker("long"), "args", ()):
        return int(given[0])
    return zlib.crc32(item.nodeid.encode()) % PARTS + 1


def is_run(item: pytest.Item, turn: int) -> bool:
    """Return True if an item is run in this turn."""
    marks = map(item.get_closest_marker, ("turns", "long"))
    return not any(marks) or part_of(item) == turn


def _turn(config: pytest.Config) -> int | None:
    turn: str | None = config.getoption("--turn")
    if turn == "today":
        return date.today().toordinal() % PARTS + 1
    return int(turn) if turn else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of a part."""
    what = "part N of 7 alone of what takes long, or is in no sample"
    parser.addoption("--turn", metavar="today|N", help=what)


def pytest_configure() -> None:
    """Have the workers and the children of this run choose as it does, past midnight, too."""
    os.environ["TALLYSTICK_SEED"] = str(SEED)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say how to run the same again."""
    lines = [f"sweeps: samples by TALLYSTICK_SEED={SEED}"]
    if turn := _turn(config):
        lines.append(f"sweeps: --turn {turn} of {PARTS}")
    return lines


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Collect a sweep as a sample and in parts."""
    if "sweep" in metafunc.fixturenames:
        parts = [
            pytest.param(Sweep(part), id=f"part{part}of{PARTS}", marks=IN_TURNS)
            for part in range(1, PARTS + 1)
        ]
        metafunc.parametrize("sweep", [pytest.param(Sweep(), id="sample"), *parts])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is in no sample, and leave out the other parts of what is run in turns.

    What is `soak` by hand is no case to choose from: its short form is.
    """
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("soak"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, all_cases in cases.items():
        (count,) = all_cases[0].get_closest_marker("sampled").args  # type: ignore[union-attr]
        for item in set(all_cases) - set(_sample(all_cases, count, name)):
            for mark in IN_TURNS:
                item.add_marker(mark)
    if (turn := _turn(config)) is not None:
        others = {one for one in items if not is_run(one, turn)}
        config.hook.pytest_deselected(items=list(others))
        items[:] = [one for one in items if one not in others]
