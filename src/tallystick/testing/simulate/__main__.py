"""Run a scenario from the command line: many seeds, one seed, or one schedule.

``python -m tallystick.testing.simulate MODULE:FUNCTION [--seed N] [--schedules N] ...``
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from functools import reduce
from typing import Any

from tallystick.printable import printable_lines
from tallystick.testing.simulate.explore import explore
from tallystick.testing.simulate.simulation import Scenario, SimulationError, simulate


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tallystick.testing.simulate",
        description="Run a scenario under the deterministic simulator.",
    )
    parser.add_argument("scenario", help="MODULE:FUNCTION, a function of a Simulation")
    parser.add_argument("--seed", type=int, help="run this seed alone, or begin with it")
    parser.add_argument("--schedules", type=int, help="number of seeds to run (1000)")
    parser.add_argument("--seconds", type=float, help="begin no run after so many seconds")
    parser.add_argument("--schedule", help="decisions of an earlier failure")
    parser.add_argument("--module", action="append", default=[], help="a module to simulate")
    parser.add_argument("--no-faults", action="store_true", help="let no file call fail")
    parser.add_argument("--no-crashes", action="store_true", help="never stop the machine")
    parser.add_argument("--fine", action="store_true", help="switch between any two lines")
    return parser.parse_args(words)


def _scenario(text: str) -> Scenario:
    module, _, name = text.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    found: Any = reduce(getattr, name.split("."), importlib.import_module(module))
    scenario: Scenario = found
    return scenario


def _tell(what: object) -> None:
    sys.stdout.write(f"{printable_lines(str(what))}\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run what the arguments say; returns the exit code, 1 after a failure."""
    given = _arguments(words)
    scenario = _scenario(given.scenario)
    options: dict[str, Any] = {
        "modules": given.module,
        "faults": not given.no_faults,
        "crashes": not given.no_crashes,
        "fine": given.fine,
    }
    try:
        if given.schedule is not None or (given.seed is not None and given.schedules is None):
            _tell(simulate(scenario, given.seed or 0, schedule=given.schedule, **options))
            return 0
        first = given.seed or 0
        seeds = range(first, first + (given.schedules or 1000))
        _tell(explore(scenario, seeds, seconds=given.seconds, **options))
    except SimulationError as failure:
        _tell(failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
