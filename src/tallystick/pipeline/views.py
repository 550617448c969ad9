"""The tables of a run as views for SQL, with timestamps where the logs tell the time of day.

In: a folder that a run wrote. Out: a database of views: ``SELECT * FROM tallystick.findings``.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from tallystick.pipeline.change_feed import DATED_SECONDS
from tallystick.pipeline.runner import OUTPUT
from tallystick.pipeline.tables.output_dir import TableSpace, literal
from tallystick.records import Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMES = {
    "time": "timestamp",
    "first_time": "first_timestamp",
    "last_time": "last_timestamp",
}
"""Columns that count units of a clock, and the timestamps made of them."""

_OF_CLOCK = {
    Clock.WALL_MS: ("timestamp_millis({})", 1_000),
    Clock.WALL_US: ("timestamp_micros({})", 1_000_000),
    Clock.WALL_NS: ("timestamp_micros({} div 1000)", 1_000_000_000),
}
"""By clock what makes a timestamp of a time, and how many of its units are a second."""

_LONG_MAX = 2**63 - 1


def create_views(
    spark: SparkSession, out: str, database: str = "tallystick", form: str = "parquet"
) -> list[str]:
    """Create a view of each table below ``out`` in a database, which is made if it is missing.

    The views read what the last good run left, whenever they are read. Beside the columns of the
    table they have ``timestamp``, ``first_timestamp``, ``last_timestamp`` and ``bucket_timestamp``
    for ``time``, ``first_time``, ``last_time`` and ``bucket``, null where the
    log's clock does not tell the time of day, and for times outside of the years 1 to 9999.

    Returns:
        The names of the views, with the database.
    """
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {_quoted(database)}")
    space = TableSpace(out.rstrip("/"), form)
    made = []
    for table in OUTPUT:
        columns = space.read(spark, table).columns
        added = [_timestamp(one, name) for one, name in _TIMES.items() if one in columns]
        if "bucket" in columns:
            seconds = _dated("bucket", "timestamp_seconds({})", 1)
            added.append(f"if(startswith(clock, 'wall'), {seconds}, NULL) AS bucket_timestamp")
        place = f"{_quoted(form)}.{_quoted(literal(str(PurePath(out) / table), form))}"
        name = f"{_quoted(database)}.{_quoted(table)}"
        spark.sql(
            f"CREATE OR REPLACE VIEW {name} AS SELECT {', '.join(['*', *added])} FROM {place}"
        )
        made.append(f"{database}.{table}")
    return made


def _timestamp(column: str, name: str) -> str:
    cases = " ".join(
        f"WHEN '{clock.value}' THEN {_dated(column, *form)}" for clock, form in _OF_CLOCK.items()
    )
    return f"CASE clock {cases} END AS {name}"


def _dated(column: str, form: str, units: int) -> str:
    """Return what makes a timestamp, and null where SQL has none: Spark would fail the query."""
    first = max(DATED_SECONDS.start * units, -_LONG_MAX)
    last = min(DATED_SECONDS.stop * units - 1, _LONG_MAX)
    return f"if({column} BETWEEN {first} AND {last}, {form.format(column)}, NULL)"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
