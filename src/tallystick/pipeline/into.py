"""The change feed into what people have: tables of Delta, Iceberg and PostgreSQL, and Debezium.

In: frames of the change feed, whole or batches of a stream. Out: a table that holds the newest row
of every key, or frames of JSON envelopes. A batch that comes again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from tallystick.pipeline.change_feed import CHANGE_TYPE, DELETE, UPDATE_BEFORE
from tallystick.pipeline.options import OptionError
from tallystick.pipeline.source.batch import collection_of
from tallystick.pipeline.stages.changes import require_columns
from tallystick.pipeline.stages.envelopes import NEEDED, plain_envelopes, typed_envelopes
from tallystick.pipeline.tables.lakehouse import (
    REQUIRED,
    columns_there,
    in_sql,
    is_case_sensitive,
    require_fit,
    types_of,
)
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
    is made with the columns `COLUMNS` if it is missing; an older table may have further columns.

    Args:
        table: its name in SQL; of a Delta table also delta.`/path`, with an absolute path.
        form: one of `FORMS`.

    Raises:
        ValueError: there is no such form.

    The function raises `OptionError` where the batch is not one of the whole feed, or the table is
    there and lacks a column, or has it in another type.
    """
    if form not in FORMS:
        raise ValueError(f"there is no form {form!r}; there are {', '.join(FORMS)}")

    def merge(batch: DataFrame, batch_id: int) -> None:
        del batch_id  # commit versions tell what was applied
        require_columns(batch, (CHANGE_TYPE, *COLUMNS))
        spark, types = batch.sparkSession, types_of(batch.select(*COLUMNS).schema)
        there = columns_there(spark, table)
        if there is None:
            spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({in_sql(types)}) USING {form}")
        else:
            require_fit(table, types, there, same_case=is_case_sensitive(spark))
        changes = batch.where(F.col(CHANGE_TYPE) != UPDATE_BEFORE).persist()
        try:
            emptied = _emptied(changes)
            if not emptied.isEmpty():
                _run(emptied, _clear(table))
            _run(_newest(changes, emptied), _merge(table))
        finally:
            changes.unpersist()

    return merge


def upsert_into(
    url: str, table: str, properties: Mapping[str, str] | None = None
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that keeps a table of PostgreSQL as `merge_into` does.

    The tasks write the newest row of every key of a batch into a table beside it, called as it is
    with ``_batch`` appended; one transaction brings them from there into the table, so who reads it
    sees a batch whole or not at all. Both are made if they are missing. The session needs the JDBC
    driver ``org.postgresql:postgresql``, and is no one of Spark Connect.

    Args:
        url: of JDBC, as ``jdbc:postgresql://HOST/DATABASE``.
        table: its name in SQL, for which the user may make tables.
        properties: of the connection: ``user``, ``password`` and others of the driver.

    Raises:
        ValueError: the URL is none of PostgreSQL, or the name is one of 63 bytes or more, which
            PostgreSQL cuts: the table beside it would be the table itself.

    The function raises `OptionError` where the batch is not one of the whole feed, the table beside
    it is there and is none of batches, or the table is there and lacks a column, has it in another
    type, or lacks the primary key.
    """
    if not url.startswith("jdbc:postgresql:"):
        raise ValueError("the URL begins with jdbc:postgresql:, as jdbc:postgresql://HOST/DATABASE")
    if len(_last_name(table).encode()) >= _NAME_BYTES:
        raise ValueError(f"the name of the table has to be shorter than {_NAME_BYTES} bytes")
    given = {"driver": _DRIVER, **(properties or {})}
    beside = f'{table[:-1]}_batch"' if table.endswith('"') else f"{table}_batch"

    def upsert(batch: DataFrame, batch_id: int) -> None:
        del batch_id  # commit versions tell what was applied
        require_columns(batch, (CHANGE_TYPE, *COLUMNS))
        with _postgres(batch, url, given) as connection:
            _require_of_batches(connection, beside)
            _require_own(connection, table)
        changes = batch.where(F.col(CHANGE_TYPE) != UPDATE_BEFORE).persist()
        try:
            emptied = _emptied(changes)
            rows = _newest(changes, emptied).withColumn("_emptied", F.expr("false"))
            cleared = emptied.withColumn("_emptied", F.expr("true"))
            both = rows.unionByName(cleared, allowMissingColumns=True)
            both.write.jdbc(url, beside, "overwrite", given)
        finally:
            changes.unpersist()
        _run_in_postgres(batch, url, given, _upserts(table, beside))

    return upsert


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
        ValueError: the changes are those of no data source of ours, or lack columns of the key or
            of the feed.
    """
    collection, key = collection_of(changes.schema)
    if collection is None and "collection" in changes.columns:
        require_columns(changes, (CHANGE_TYPE, *NEEDED))
        return plain_envelopes(changes, with_schema=schema)
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


def _equal(names: Sequence[str], quote: str = "`") -> str:
    quoted = [f"{quote}{name}{quote}" for name in names]
    return " AND ".join(f"old.{name} = new.{name}" for name in quoted)


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


# -- PostgreSQL ----------------------------------------------------------------------------------

_DRIVER = "org.postgresql.Driver"
_QUOTE = '"'
_NAME_BYTES = 63
"""What PostgreSQL keeps of a name."""


_TYPES = {"_commit_version": "bigint", "ordinal": "integer", "_commit_timestamp": "timestamptz"}
_TYPES |= {"gtrid": "bytea", "after": "bytea"}
"""By column its type in PostgreSQL; of all others it is text."""

_SHOWN = {"timestamptz": "timestamp with time zone", "varchar": "text", "character varying": "text"}
"""Types by other names: those of the server's catalogue, and what takes the same values."""


def _upserts(table: str, beside: str) -> list[str]:
    """Return the statements that bring the rows of a batch from the table beside it."""
    columns = ", ".join(f'"{name}" {_TYPES.get(name, "text")}' for name in COLUMNS)
    names, key = (", ".join(f'"{name}"' for name in some) for some in (COLUMNS, KEY))
    updates = ", ".join(f'"{name}" = excluded."{name}"' for name in COLUMNS if name not in KEY)
    old, new, other = (
        ", ".join(f'{one}."{name}"' for name in VERSION) for one in ("old", "new", "excluded")
    )
    delete = f"DELETE FROM {table} AS old USING {beside} AS new WHERE ({old}) < ({new}) AND"
    insert = (
        f"INSERT INTO {table} AS old ({names}) SELECT {names} FROM {beside} "
        f"WHERE NOT (_deleted OR _emptied) ON CONFLICT ({key}) DO UPDATE SET {updates} "
        f"WHERE ({old}) < ({other})"
    )
    return [
        f"CREATE TABLE IF NOT EXISTS {table} ({columns}, PRIMARY KEY ({key}))",
        f"{delete} new._emptied AND {_equal(_COLLECTION, _QUOTE)}",
        f"{delete} new._deleted AND {_equal(KEY, _QUOTE)}",
        insert,
        f"DROP TABLE {beside}",
    ]


def _last_name(table: str) -> str:
    """Return the name of a table without its schema, and without quotes."""
    if table.endswith(_QUOTE):
        return table[:-1].replace('""', "\0").rpartition(_QUOTE)[2].replace("\0", _QUOTE)
    return table.rpartition(".")[2]


def _require_of_batches(connection: Any, beside: str) -> None:
    """Check that the table beside, which is replaced, is one of batches, or is not there.

    Raises `OptionError`.
    """
    found = _columns_of(connection, beside)
    if found and not {*KEY, *VERSION, "_deleted"} <= {*found}:
        raise OptionError(
            f"batches would replace the table {beside}, which is none of theirs",
            found=", ".join(found),
            advice="Rename it, or give the table of the feed another name",
        )


def _require_own(connection: Any, table: str) -> None:
    """Check that the table, if it is there, takes the rows of a batch. Raises `OptionError`."""
    there = _columns_of(connection, table)
    if not there:
        return
    kinds = {name: _TYPES.get(name, "text") for name in COLUMNS}
    wanted = {name: _SHOWN.get(kind, kind) for name, kind in kinds.items()}
    require_fit(table, wanted, there, same_case=True)
    names = ", ".join(f"'{name}'" for name in sorted(KEY))
    keys = (
        "SELECT count(*)::text, '' FROM pg_index WHERE indisunique AND indpred IS NULL "
        f"AND indrelid = {_regclass(table)} AND (SELECT array_agg(attname::text ORDER BY attname) "
        f"FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY(indkey)) = ARRAY[{names}]"
    )
    if "0" in _pairs(connection, keys):
        raise OptionError(
            f"the table {table} is there, and nothing keeps a row of it from being there twice",
            expected=f"the primary key ({', '.join(KEY)})",
            advice=f"Nothing was written; ALTER TABLE {table} ADD PRIMARY KEY, or name another",
        )


def _columns_of(connection: Any, table: str) -> dict[str, str]:
    """Return the columns of a table of PostgreSQL, as `columns_there`; none where it is missing."""
    query = (
        "SELECT attname, CASE WHEN attnotnull AND NOT atthasdef AND attidentity = '' "
        f"THEN '{REQUIRED}' ELSE '' END || format_type(atttypid, atttypmod) FROM pg_attribute "
        f"WHERE attnum > 0 AND NOT attisdropped AND attrelid = {_regclass(table)}"
    )
    found = _pairs(connection, query)
    kinds = {name: kind.removeprefix(REQUIRED) for name, kind in found.items()}
    return {
        name: found[name].removesuffix(kind) + _SHOWN.get(kind, kind)
        for name, kind in kinds.items()
    }


def _regclass(table: str) -> str:
    name = table.replace("'", "''")
    return f"to_regclass('{name}')"


def _pairs(connection: Any, query: str) -> dict[str, str]:
    """Return the rows of two texts that a query gives."""
    found, rows = {}, connection.createStatement().executeQuery(query)
    while rows.next():
        found[str(rows.getString(1))] = str(rows.getString(2))
    return found


def _run_in_postgres(
    batch: DataFrame, url: str, properties: Mapping[str, str], statements: Sequence[str]
) -> None:
    """Run statements in one transaction."""
    with _postgres(batch, url, properties) as connection:
        connection.setAutoCommit(False)
        for statement in statements:
            connection.createStatement().execute(statement)
        connection.commit()


@contextmanager
def _postgres(batch: DataFrame, url: str, properties: Mapping[str, str]) -> Iterator[Any]:
    """Give a connection by the driver of JDBC that the session has."""
    jvm: Any = batch.sparkSession.sparkContext._jvm
    given = jvm.java.util.Properties()
    for name, value in properties.items():
        given.setProperty(name, value)
    connection = jvm.org.postgresql.Driver().connect(url, given)
    try:
        yield connection
    finally:
        connection.close()
