"""What each test costs, in processor time: a busy machine changes that little.

A plugin of pytest. Where the environment variable TALLYSTICK_TIMES names a file, it appends a line
for each phase of each test: its seconds, those of its children that ended in it, its outcome, and
its seconds by the clock. ``python -m tests.times FILE`` prints the slowest tests of all runs that
wrote there, those that waited longest, and how many tests passed.
With ``--seconds N`` no further test begins when the run is so old; each says so.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

VARIABLE: Final = "TALLYSTICK_TIMES"
SLOWEST: Final = 20
OUTCOMES: Final = ("failed", "passed", "skipped")

_END = pytest.StashKey[float]()
_AT = pytest.StashKey[float]()
_NAME: Final = "processor_s"


def _used() -> float:
    return sum(os.times()[:4])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the limit of a run."""
    parser.addoption("--seconds", type=float, help="begin no further test after so many seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count the seconds of the run."""
    config.stash[_END] = time.monotonic() + (config.getoption("--seconds") or math.inf)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test too late."""
    if time.monotonic() > item.config.stash[_END]:
        pytest.skip(f"not begun within {item.config.getoption('--seconds'):.0f} seconds")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Begin to count."""
    item.config.stash[_AT] = _used()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Have the report of a phase say what it cost, wherever the report goes."""
    report = yield
    now = _used()
    report.user_properties = [*report.user_properties, (_NAME, now - item.config.stash[_AT])]
    item.config.stash[_AT] = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write it down, once: workers hand their reports on."""
    path = os.environ.get(VARIABLE)
    if path and "PYTEST_XDIST_WORKER" not in os.environ:
        seconds = sum(float(str(one)) for name, one in report.user_properties if name == _NAME)
        # Of a test that passes, each phase does.
        outcome = report.outcome if report.when == "call" or not report.passed else None
        with Path(path).open("a") as file:
            file.write(json.dumps([report.nodeid, seconds, outcome, report.duration]) + "\n")


def summary(lines: list[str]) -> str:
    """Return the slowest tests, those that waited longest, and how many had which outcome."""
    seconds: Counter[str] = Counter()
    waited: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for line in lines:
        name, spent, outcome, duration = json.loads(line)
        seconds[name] += spent
        waited[name] += max(duration - spent, 0)
        outcomes[outcome] += 1
    slowest, longest = (
        [f"{spent:8.1f} s  {name}" for name, spent in found.most_common(SLOWEST)]
        for found in (seconds, waited)
    )
    counts = [f"{outcomes[one]} {one}" for one in OUTCOMES if outcomes[one]]
    total = f"{sum(seconds.values()):.0f} s of processors"
    return "\n".join(
        [
            *("The slowest tests, by processor time:", *slowest),
            *("Those that waited longest, for disks, servers and others:", *longest),
            f"{', '.join(counts)} in {total}, {sum(waited.values()):.0f} s waited",
        ]
    )


if __name__ == "__main__":
    print(summary(Path(sys.argv[1]).read_text().splitlines()))  # noqa: T201 - it is a command
