"""``as_of``: the change feed replayed to the rows that were there at a time or an LSN.

In: the ``changes`` table. Out: the last image of every key of every collection of every
log, without deleted keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from tallystick.pipeline.change_feed import CHANGE_TYPE, UPDATE_BEFORE
from tallystick.pipeline.options import OptionError
from tallystick.records import Kind

_OF_CHANGES = ("system", "log", "collection", "key", "kind", "commit_sequence", "ordinal", "time")
"""The columns that tell which change of a row was the last one."""


def as_of(changes: DataFrame, *, time: int | None = None, sequence: int | None = None) -> DataFrame:
    """Return the rows after all changes up to a time or a commit sequence, both inclusive.

    ``time`` is in the log's clock; without either limit, the newest rows.
    Truncation of a collection is a change of kind ``truncate`` and empties it.

    Raises:
        OptionError: these are no changes, or those of one collection in its own columns.
    """
    require_columns(changes, _OF_CHANGES)
    wanted = changes
    if CHANGE_TYPE in changes.columns:
        wanted = wanted.where(F.col(CHANGE_TYPE) != UPDATE_BEFORE)
    if time is not None:
        wanted = wanted.where(F.col("time") <= time)
    if sequence is not None:
        wanted = wanted.where(F.col("commit_sequence") <= sequence)
    collection = Window.partitionBy("system", "log", "collection")
    emptied = F.max(F.when(F.col("kind") == Kind.TRUNCATE.value, _order())).over(collection)
    alive = wanted.withColumn("_emptied", emptied).where(
        F.col("_emptied").isNull() | (_order() > F.col("_emptied"))
    )
    # Without _change_type nothing else tells the row before an update from the row after it.
    images = [F.col(name).isNotNull() for name in changes.columns if name.lower() == "after"]
    last = alive.groupBy("system", "log", "collection", "key").agg(
        F.max_by(F.struct(*changes.columns), F.struct(_order(), *images)).alias("change")
    )
    return last.select("change.*").where(F.col("kind") != Kind.DELETE.value)


def require_columns(changes: DataFrame, names: Sequence[str]) -> None:
    """Check that changes of all collections have these columns.

    Raises:
        OptionError: they lack some.
    """
    there = {name.lower() for name in changes.columns}
    if lacking := [one for one in names if one.lower() not in there]:
        raise OptionError(
            "the changes lack columns",
            expected="the table changes of the data source, whole",
            found=f"none of {', '.join(dict.fromkeys(lacking))}",
            advice="Read it without feed=false, and without collection",
        )


def _order() -> Column:
    return F.struct("commit_sequence", "ordinal")
