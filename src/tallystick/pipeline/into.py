"""The change feed into what people have: tables of Delta and Iceberg, and envelopes of Debezium.

In: frames of the change feed, whole or batches of a stream. Out: a table that holds the newest row
of every key, or frames of JSON envelopes. A batch that comes again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from tallystick.pipeline.change_feed import CHANGE_TYPE, DELETE, UPDATE_BEFORE
from tallystick.pipeline.source.batch import collection_of
from tallystick.pipeline.stages.envelopes import plain_envelopes, typed_envelopes
from tallystick.pipeline.typed import OF_FEED
from tallystick.records import Kind

KEY = ("system", "log", "collection", "key")
"""The columns that name a row."""

VERSION = ("_commit_version", "ordinal")
"""The columns that order the changes of a log."""

COLUMNS = (*KEY, *VERSION, "_commit_timestamp", "transaction", "gtrid", "after", "values")
"""The columns of a table that follows the feed."""

FORMS = ("delta", "iceberg")

_COLLECTION = KEY[:3]


def merge_into(table: str, form: str = "delta") -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that keeps a table as the newest row of every key.

    A row is replaced or deleted by changes of a later commit only, so a batch that is tried again
    after a failure, at whatever point, leaves the rows that it leaves when it runs once. The table
    is made if it is missing, with the columns `COLUMNS`.

    Args:
        table: its name in SQL; of a Delta table also delta.`/path`, with an absolute path.
        form: one of `FORMS`.

    Raises:
        ValueError: there is no such form.
    """
    if form not in FORMS:
        raise ValueError(f"there is no form {form!r}; there are {', '.join(FORMS)}")

    def merge(batch: DataFrame, batch_id: int) -> None:
        del batch_id  # commit versions tell what was applied
        columns = ", ".join(f"`{one.name}` {one.dataType.simpleString()}"
                            for one in batch.select(*COLUMNS).schema)  # fmt: skip
        batch.sparkSession.sql(f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING {form}")
        changes = batch.where(F.col(CHANGE_TYPE) != UPDATE_BEFORE).persist()
        try:
            emptied = _emptied(changes)
            if not emptied.isEmpty():
                _run(emptied, _clear(table))
            _run(_newest(changes, emptied), _merge(table))
        finally:
            changes.unpersist()

    return merge


def as_debezium(changes: DataFrame, *, schema: bool = False) -> DataFrame:
    """Return changes as the columns ``topic``, ``key`` and ``value`` of Debezium's JSON envelope.

    The topic is ``tallystick.SYSTEM.TABLE``; a table whose name nothing tells is ``unnamed`` there,
    and its number is in ``source.table``. In ``before`` and ``after`` a row has ``key``, ``body``
    (base64) and, where the log has columns, ``values``; ``source`` tells log, transaction and
    commit version. A change is one envelope: rows of old images are left out, as the row after
    them has the old body. ``before.values`` is known for deleted rows only.

    Changes of one collection in its own columns have the topic ``tallystick.TABLE``; a row has
    these columns and ``_rescued``, and the key is the primary key, or ``key`` as in the feed where
    the table has none or a column of it is not known. It is known before the change where it is
    deleted. An update that changes the primary key is two envelopes: the row is deleted under the
    old key, and made under the new one.

    What empties a table has no key, as Debezium has it.

    Args:
        changes: the change feed, of a batch or a stream.
        schema: True puts Kafka Connect's schema beside each key and value, as JSON converters do
            with ``schemas.enable``. Dates are then days, timestamps microseconds since 1970,
            decimals texts.

    Raises:
        ValueError: the changes are those of no data source of ours, or lack columns of the key.
    """
    if "collection" in changes.columns:
        return plain_envelopes(changes, with_schema=schema)
    collection, key = collection_of(changes.schema)
    if collection is None:
        raise ValueError("the changes have no column `collection`, and are no typed table")
    if lacking := [one for one in (*key, *OF_FEED) if one not in changes.columns]:
        raise ValueError(f"envelopes need the columns {', '.join(lacking)}, too")
    return typed_envelopes(changes, collection, key, with_schema=schema)


def _emptied(changes: DataFrame) -> DataFrame:
    """Return, by collection, the place of the last change that emptied it."""
    found = changes.where(F.col(CHANGE_TYPE) == Kind.TRUNCATE.value).groupBy(*_COLLECTION)
    return found.agg(F.max(F.struct(*VERSION)).alias("_at")).select(*_COLLECTION, "_at.*")


def _newest(changes: DataFrame, emptied: DataFrame) -> DataFrame:
    """Return the last change of every key, without those before their collection was emptied."""
    keys = changes.where(F.col(CHANGE_TYPE) != Kind.TRUNCATE.value).groupBy(*KEY)
    last = keys.agg(F.max_by(F.struct(*changes.columns), F.struct(*VERSION)).alias("_last"))
    rows = last.select("_last.*").withColumn("_deleted", F.col(CHANGE_TYPE) == DELETE)
    limits = emptied.select(*_COLLECTION, F.struct(*VERSION).alias("_at"))
    kept = F.col("_at").isNull() | (F.struct(*VERSION) > F.col("_at"))
    return rows.join(limits, [*_COLLECTION], "left").where(kept).select(*COLUMNS, "_deleted")


def _clear(table: str) -> str:
    matches = f"{_equal(_COLLECTION)} AND {_older()}"
    return f"MERGE INTO {table} AS old USING {{new}} AS new ON {matches} WHEN MATCHED THEN DELETE"


def _merge(table: str) -> str:
    names = ", ".join(f"`{name}`" for name in COLUMNS)
    values = ", ".join(f"new.`{name}`" for name in COLUMNS)
    updates = ", ".join(f"`{name}` = new.`{name}`" for name in COLUMNS)
    return (
        f"MERGE INTO {table} AS old USING {{new}} AS new ON {_equal(KEY)} "
        f"WHEN MATCHED AND {_older()} AND new._deleted THEN DELETE "
        f"WHEN MATCHED AND {_older()} THEN UPDATE SET {updates} "
        f"WHEN NOT MATCHED AND NOT new._deleted THEN INSERT ({names}) VALUES ({values})"
    )


def _equal(names: Sequence[str]) -> str:
    return " AND ".join(f"old.`{name}` = new.`{name}`" for name in names)


def _older() -> str:
    version, ordinal = VERSION
    return (
        f"(old.{version} < new.{version} OR "
        f"(old.{version} = new.{version} AND old.{ordinal} < new.{ordinal}))"
    )


def _run(rows: DataFrame, statement: str) -> None:
    """Run a statement in which ``{new}`` stands for the rows."""
    name = f"tallystick_{uuid4().hex}"
    rows.createOrReplaceTempView(name)
    try:
        rows.sparkSession.sql(statement.replace("{new}", name))
    finally:
        rows.sparkSession.catalog.dropTempView(name)
