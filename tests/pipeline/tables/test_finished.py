"""How far a job is, while it runs."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tallystick import Journal
from tallystick.pipeline.runner import Run
from tallystick.pipeline.tables import finished
from tallystick.pipeline.tables.finished import watched
from tallystick.pipeline.tables.write_task import do_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_tasks_of_a_job_that_have_ended_are_told_as_they_end(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finished, "LOOK_S", 0.01)
    told = list[tuple[int, int]]()
    work: Any = [partial(time.sleep, 0.1)] * 8
    with watched(spark, len(work), lambda done, of: told.append((done, of))):
        do_all(spark, work, "/")
    during = [done for done, _ in told]
    assert {of for _, of in told} == {8}
    assert during[: during.index(max(during)) + 1] == sorted(
        during[: during.index(max(during)) + 1]
    )
    assert any(done > 0 for done in during)
    assert max(during) <= 8


def test_an_engine_without_java_is_not_asked() -> None:
    told = list[tuple[int, int]]()
    with watched(cast("SparkSession", SimpleNamespace()), 3, lambda *one: told.append(one)):
        pass
    assert told == []


def test_a_run_tells_how_much_of_it_is_done(spark: SparkSession, tmp_path: Path) -> None:
    with Journal(str(tmp_path / "log")) as journal:
        journal.append(b"1")
    told = list[tuple[str, int, int]]()
    Run([str(tmp_path / "log")], str(tmp_path / "out")).advance(
        spark, lambda *one: told.append(one)
    )
    done = [one[1] for one in told]
    assert done == sorted(done)
    assert (told[0], told[-1]) == (("logs", 0, 100), ("", 100, 100))
