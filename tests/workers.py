"""How tests are spread over processes, and what their workers keep from their children.

A plugin of pytest. With ``-n 2 --dist loadscope`` the cases of one test function go to one worker,
and all functions that get the Spark session to one, too, so that there is one Java process. What
takes longest goes first, then the functions with the most cases.
"""

from __future__ import annotations

import ast
import gc
import os
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK: Final = "spark"

TOGETHER: Final = "tests/pipeline/test_cluster.py"
"""A file whose tests share what takes long to start: they go to one worker, too."""

WITH_SESSION: Final = "tests/pipeline/test_object_store.py"
"""A file whose tests share a server with those of the session: all of them go to its worker."""

FIRST: Final = (
    SPARK,
    TOGETHER,
    "tests/pipeline/test_into.py",
    "tests/pipeline/source/test_stream_kills.py",
    "tests/pipeline/test_connect.py",
    "tests/systems/tally/live/shared/test_fencing.py",
    "tests/interop/undo/test_undo.py",
    "tests/testing/test_outside.py",
    "tests/services/test_limits.py",
    "tests/services/transactions/test_kill.py",
)
"""What takes a minute and more, most of it waiting: begun last, it would have the other workers
wait for it. Each case of these files goes to any worker."""


class ByFunction(LoadScopeScheduling):
    """Gives workers all cases of a function, or of the Spark session, at a time."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # the workers have put them in order
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(self.config.rootpath, nodeid)


def unit_of(root: Path, nodeid: str) -> str:
    """Return what goes to one worker together with this test."""
    file, _, name = nodeid.partition("::")
    function = name.partition("[")[0]
    if file == TOGETHER:
        return file
    if file == WITH_SESSION or function.rpartition("::")[2] in _given_spark(root / file):
        return SPARK
    return nodeid if file in FIRST else f"{file}::{function}"


@cache
def _given_spark(file: Path) -> set[str]:
    """Return the functions of a file that get the session, some of them by a fixture there."""
    text = file.read_text()
    if "spark: SparkSession" not in text:
        return set()
    functions = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef)]
    given = {one.name: {argument.arg for argument in one.args.args} for one in functions}
    found = {SPARK}
    while more := {name for name, names in given.items() if names & found} - found:
        found |= more
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Spread functions rather than files or classes."""
    return ByFunction(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have a worker begin with what takes longest."""
    if not hasattr(config, "workerinput"):
        return
    units = {item: unit_of(config.rootpath, item.nodeid) for item in items}
    cases = Counter(units.values())

    def order(item: pytest.Item) -> tuple[int, int]:
        of_these = [one for one in FIRST if units[item].startswith(one)]
        return FIRST.index(of_these[0]) if of_these else len(FIRST), -cases[units[item]]

    items.sort(key=order)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what uses the Spark session."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.spark)
        unit = unit_of(item.config.rootpath, item.nodeid)
        assert unit in (SPARK, TOGETHER), f"{item.nodeid} would start a second session"


def pytest_collection_finish() -> None:
    """Have the collector of garbage pass over the tests, of which there are thousands."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Have the children of a worker not keep its pipes, whose end says that the worker crashed."""
    if hasattr(config, "workerinput") and Path("/proc/self/fd").exists():
        pipes = [number for number in _open_descriptors() if _is_pipe(number) and number > 2]
        os.register_at_fork(after_in_child=partial(_replace_by_nothing, pipes))


def _open_descriptors() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/fd").iterdir()]


def _is_pipe(number: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}").startswith("pipe:")  # noqa: PTH115 - no file
    except OSError:  # that of the listing
        return False


def _replace_by_nothing(descriptors: list[int]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in descriptors:
        os.dup2(nothing, number, inheritable=False)
    os.close(nothing)
