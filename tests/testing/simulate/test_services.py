"""Our own services under the simulator: a few schedules always, many with the soak tests.

``SIMULATE_SECONDS`` is the time for each service in soak (600); ``SIMULATE_SEED`` the first seed.
The figure that is printed: schedules tried, how many were different, different states of the disk
that crashes left and a recovery was checked on.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.deadlines import TICK_S
from tallystick.testing.simulate import explore
from tallystick.testing.simulate.simulation import Scenario
from tests.testing.simulate.scenario_behind import behind
from tests.testing.simulate.scenario_commit import commits
from tests.testing.simulate.scenario_decisions import decisions
from tests.testing.simulate.scenario_group import group
from tests.testing.simulate.scenario_journal import journal, journal_tasks
from tests.testing.simulate.scenario_pages import pages
from tests.testing.simulate.scenario_shared import shared

SERVICES = [
    (group, 1000),
    (journal, 150),
    (journal_tasks, 150),
    (decisions, 150),
    (commits, 150),
    (pages, 80),
    (behind, 80),
    (shared, 150),
]
EVERY_SERVICE = pytest.mark.parametrize(
    ("scenario", "schedules"), SERVICES, ids=[scenario.__name__ for scenario, _ in SERVICES]
)


@pytest.mark.long
@pytest.mark.sampled(2)
@EVERY_SERVICE
def test_no_schedule_breaks_a_promise(scenario: Scenario, schedules: int) -> None:
    found = explore(scenario, range(schedules))
    assert found.schedules == schedules
    assert len(found.interleavings) > schedules / 2
    assert len(found.states) > 10


@pytest.mark.soak
@EVERY_SERVICE
def test_no_schedule_of_very_many_breaks_a_promise(
    scenario: Scenario, schedules: int, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = float(os.environ.get("SIMULATE_SECONDS", "600"))
    first = int(os.environ.get("SIMULATE_SEED", int(time.time()) * 1000))
    found = explore(scenario, range(first, first + 10**9), seconds=seconds)
    with capsys.disabled():
        print(f"\n{scenario.__name__}, seeds from {first}: {found}")  # noqa: T201 - the figure
    assert found.schedules > schedules


def test_a_real_manager_takes_no_part_in_a_simulation(tmp_path: Path) -> None:
    with TransactionManager(tmp_path, {}) as tm, tm.begin():
        (rounds,) = [one for one in threading.enumerate() if one.name == "tallystick-reaper"]
        begun = time.monotonic()
        while time.monotonic() - begun < 5 * TICK_S:
            explore(group, range(50))
        assert rounds.is_alive()
