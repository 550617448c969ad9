"""The tables of a run in Delta or Iceberg: ``python -m tests.pipeline.lake_tables FORM HOME JARS``.

They are those of a run into Parquet, whatever changes between two runs and wherever a run is
killed; what did not change is not written again. Prints the number of commits that were killed.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tallystick.pipeline.runner import OUTPUT, Run
from tallystick.pipeline.session import start
from tallystick.pipeline.tables.lakehouse import Lake, published
from tests.fixtures import fixture_dir
from tests.pipeline.lakehouse import settings
from tests.pipeline.walkthrough import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KILLED_AFTER = (1, 4, 7)
"""Commits of a run that are made before it is killed."""

Rows = dict[str, list[str]]


class _Killed(BaseException):
    """Stands for the end of the process before a commit."""


@contextmanager
def killing(after: int) -> Iterator[None]:
    """Stop a run after some commits of tables."""
    calls = 0
    exchange = Lake.exchange

    def counted(self: Lake, *given: Any) -> None:
        nonlocal calls
        if calls == after:
            raise _Killed
        calls += 1
        exchange(self, *given)

    with pytest.MonkeyPatch.context() as patch, suppress(_Killed):
        patch.setattr(Lake, "exchange", counted)
        yield


def rows_of(tables: dict[str, DataFrame]) -> Rows:
    """All rows, in an order of their own."""
    assert set(tables) == set(OUTPUT)
    return {
        name: sorted(repr(sorted(row.items())) for row in table.toArrow().to_pylist())
        for name, table in tables.items()
    }


def expected(spark: SparkSession, logs: Path, out: Path) -> Rows:
    """The rows of a run into Parquet, from nothing."""
    run = Run([str(logs)], str(out), anew=True)
    run.advance(spark)
    return rows_of({name: spark.read.parquet(str(out / name)) for name in OUTPUT})


def main(form: str, home: Path, jars: str) -> None:
    """Run, change the logs, kill a few runs, run again; and compare after each."""
    spark = start("local[2]", settings(form, home, jars))
    logs, out = home / "logs", "ice.tables" if form == "iceberg" else str(home / "lake")
    if form == "iceberg":
        spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.tables")
    for case in ("crash-mid-commit", "committed-2pc"):
        shutil.copytree(fixture_dir("bitronix") / case, logs / case)
    write(logs, 1)
    run, lake = Run([str(logs)], out, form), Lake(spark, out, form)

    def now() -> Rows:
        return rows_of(published(spark, out, form))

    def files() -> set[str]:
        from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

        kept = lake.read("records").where(F.col("log").contains("crash-mid-commit"))
        return {row[0] for row in kept.select(F.input_file_name()).distinct().collect()}

    with killing(3):
        run.advance(spark)
    assert lake.versions() == {}  # nothing is published
    assert len(run.advance(spark)) == 5
    first, versions, kept = now(), lake.versions(), files()
    wanted = expected(spark, logs, home / "parquet")
    for name in OUTPUT:
        assert first[name] == wanted[name], name
    assert len(first["global_transactions"]) > 1
    assert run.advance(spark) == []
    assert lake.versions() == versions
    # A log grows, one goes, and one comes that is gone again before the next run.
    write(logs, 101)
    shutil.rmtree(logs / "committed-2pc")
    shutil.copytree(fixture_dir("bitronix") / "rollover-2", logs / "short")
    for commits in KILLED_AFTER:
        with killing(commits):
            run.advance(spark)
        assert lake.versions() == versions
    assert now() == first
    shutil.rmtree(logs / "short")
    assert len(run.advance(spark)) == 3
    assert now() == expected(spark, logs, home / "parquet")
    assert now() != first
    assert files() == kept
    assert kept
    print(len(KILLED_AFTER))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
