"""Fixtures that every test may use; those of a service stand in plugins beside it."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings

pytest_plugins = [
    "tests.forked",
    "tests.memory",
    "tests.servers",
    "tests.sweeps",
    "tests.times",
    "tests.workers",
    "tallystick.testing.chaos.plugin",
]

BOTH_CORES = tuple(
    f"tests/{folder}/" for folder in ("storage/group", "systems/tally/live", "services/journal")
)
"""Folders whose tests run on the compiled core of group commit and again on its twin in Python."""

# One example may be slow on a busy machine; the number of examples is the limit, not time.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("soak", deadline=None, print_blob=True, max_examples=5_000)
# Whether a change is noticed, as `make mutants` asks, takes no smaller example of it.
settings.register_profile(
    "mutants",
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("default")


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Have Ctrl-C work, also in a shell that has its background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what runs on both cores of group commit."""
    if item.nodeid.startswith(BOTH_CORES):
        item.add_marker(pytest.mark.both_cores)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests recorded with ``record_property("figure", ...)``."""
    for report in terminalreporter.stats.get("passed", []):
        for name, figure in report.user_properties:
            if name == "figure":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {figure}")
