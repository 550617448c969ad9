"""Tables of some logs in files that live as long as a run: each log is decoded once for all tables.

In: logs. Out: their rows, table by table. On one machine only: a cluster has no folder that all
of its workers are known to share.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import bundles
from tallystick.pipeline.tables.bundle_tasks import BundleTasks
from tallystick.pipeline.tables.incremental import rows_in
from tallystick.pipeline.tables.write_task import SUFFIX, do_all
from tallystick.systems.protocol import LogSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CODEC = "lz4"
"""Little work to pack and unpack: the files are read once or twice."""


def on_one_machine(spark: SparkSession) -> bool:
    """Return True if driver and workers are known to see the same folders."""
    context = getattr(spark, "sparkContext", None)  # a session of Spark Connect has none
    return context is not None and str(context.master).startswith("local")


@contextmanager
def decoded(
    spark: SparkSession, logs: Sequence[LogSource], options: SourceOptions
) -> Iterator[Callable[[str], DataFrame]]:
    """Give a function that returns the rows of a table of the logs, for as long as it is open."""
    with TemporaryDirectory(
        prefix="tallystick-", dir=_local_dir(spark), ignore_cleanup_errors=True
    ) as folder:
        yield _DecodedLogs(spark, logs, options, Path(folder))


@dataclass
class _DecodedLogs:
    """The rows of logs, written below ``folder`` when a table is first asked for."""

    spark: SparkSession
    logs: Sequence[LogSource]
    options: SourceOptions
    folder: Path

    def __call__(self, table: str) -> DataFrame:
        files = self._written.joinpath(table).glob(f"[!.]*{SUFFIX}")
        return rows_in(self.spark, table, sorted(map(str, files)))

    @cached_property
    def _written(self) -> Path:
        tasks = [
            BundleTasks(
                bundle, f"{number:05d}", str(self.folder), self.options, _CODEC, profile=False
            )
            for number, bundle in enumerate(bundles(self.logs, self.options))
        ]
        writes = [one for each in tasks for one in each.writes]
        folds = [one for each in tasks for one in each.folds]
        for work in filter(None, (writes, folds)):
            do_all(self.spark, work, str(self.folder))
        return self.folder


def _local_dir(spark: SparkSession) -> str | None:
    """Return where Spark puts files of its own; None: where every program does."""
    folders = os.environ.get("SPARK_LOCAL_DIRS") or spark.conf.get("spark.local.dir", None)
    return folders.split(",")[0] if folders else None
