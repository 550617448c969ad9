"""The chaos kit as a pytest plugin: ``pytest_plugins = ["tallystick.testing.chaos.plugin"]``.

In: options of the command line. Out: the fixture ``chaos``, a `Chaos` that obeys them.
"""

from __future__ import annotations

import pytest

from tallystick.testing.chaos.trials import Chaos


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose trials."""
    group = parser.getgroup("tallystick chaos")
    group.addoption(
        "--chaos-fault", action="append", default=[], metavar="NAME", help="only this fault"
    )
    group.addoption("--chaos-step", type=int, metavar="N", help="only at step N")
    group.addoption("--chaos-sample", type=int, metavar="COUNT", help="COUNT trials by chance")
    group.addoption("--chaos-seed", type=int, default=0, metavar="N", help="of that chance")


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> Chaos:
    """Trials as the command line wants them."""
    option = request.config.getoption
    return Chaos(
        faults=option("--chaos-fault"),
        step=option("--chaos-step"),
        sample=option("--chaos-sample"),
        seed=option("--chaos-seed"),
    )
