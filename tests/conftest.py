"""Fixtures that every test may use; those of a service stand in plugins beside it."""

from __future__ import annotations

import pytest
from hypothesis import settings

pytest_plugins = ["tests.servers"]

# One example may be slow on a busy machine; the number of examples is the limit, not time.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("soak", deadline=None, print_blob=True, max_examples=5_000)
settings.load_profile("default")


# Fixture -> what is marked. Tests that share something costly run in one worker.
_COSTLY = {"spark": "spark", "postgres_server": "servers", "mariadb_server": "servers"}


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests by the costly fixtures that they use."""
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        if "spark" in names:
            item.add_marker(pytest.mark.spark)
        for group in {_COSTLY[name] for name in names & _COSTLY.keys()}:
            item.add_marker(pytest.mark.xdist_group(group))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests recorded with ``record_property("figure", ...)``."""
    for report in terminalreporter.stats.get("passed", []):
        for name, figure in report.user_properties:
            if name == "figure":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {figure}")
