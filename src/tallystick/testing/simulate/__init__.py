"""Deterministic simulation: threads, tasks, crashes and failing disks, all from one seed.

In: a scenario, which is a function of a `Simulation`. Out: `simulate` runs it once, `explore` with
many seeds; a failure is made short and tells the line that runs it again. See
``docs/guide/simulate.md``. Needs the extra ``testing``.
"""

from __future__ import annotations

from tallystick.errors import MissingExtraError

try:
    from tallystick.testing.simulate.explore import Exploration, explore, shortened
    from tallystick.testing.simulate.scheduler import DeadlockError, EndlessError
    from tallystick.testing.simulate.simulation import (
        Outcome,
        Simulation,
        SimulationError,
        simulate,
    )
except ImportError as error:
    raise MissingExtraError(str(error.name), "testing") from error

__all__ = [
    "DeadlockError",
    "EndlessError",
    "Exploration",
    "Outcome",
    "Simulation",
    "SimulationError",
    "explore",
    "shortened",
    "simulate",
]
