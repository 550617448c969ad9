"""How tests are spread over processes, and what their workers keep from their children.

A plugin of pytest. With ``-n 2 --dist loadscope`` the cases of one test function go to one worker,
and all files that use the Spark session to one, too, so that there is one Java process. Functions
with the most cases go first.
"""

from __future__ import annotations

import gc
import os
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling


class ByFunction(LoadScopeScheduling):
    """Gives workers all cases of a function, or of the Spark session, at a time."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        return (
            "spark"
            if _uses_spark(self.config.rootpath / file)
            else f"{file}::{name.partition('[')[0]}"
        )


@cache
def _uses_spark(file: Path) -> bool:
    return "spark: SparkSession" in file.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Spread functions rather than files or classes."""
    return ByFunction(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what uses the Spark session."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.spark)


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
