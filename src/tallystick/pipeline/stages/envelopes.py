"""Changes as envelopes of Debezium: JSON, or JSON with the schema beside each.

In: frames of the change feed, or of one collection in its own columns. Out: frames of ``topic``,
``key`` and ``value``, in expressions of Spark alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it
from pyspark.sql.types import StructField

from tallystick.pipeline.change_feed import CHANGE_TYPE, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from tallystick.pipeline.typed import KEY_CHANGED, OF_FEED, RESCUED
from tallystick.records import Kind

_OPERATIONS = {INSERT: "c", UPDATE_AFTER: "u", DELETE: "d", Kind.TRUNCATE.value: "t"}
"""By type of change the letter that Debezium has for it."""
_JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",  # Spark's own has milliseconds
}

NEEDED = (
    *("system", "log", "ordinal", "collection", "key", "transaction", "gtrid", "before", "after"),
    *("values", "file", "offset", CHANGE_TYPE, "_commit_version", "_commit_timestamp"),
)
"""The columns of the whole feed that stand in its envelopes."""

_UNNAMED = "unnamed"
"""In topics, the table whose name nothing tells."""
_NUMBER = r"^\d+(#\d+)?$"
"""What stands for such a table in changes."""
_NOT_IN_TOPICS = "[^A-Za-z0-9._-]"

_DAY_MICROSECONDS = 86_400_000_000
_SECOND_MICROSECONDS = 1_000_000

Schema = Mapping[str, Any]
_TYPES: dict[str, Schema] = {
    "tinyint": {"type": "int8"},
    "smallint": {"type": "int16"},
    "int": {"type": "int32"},
    "bigint": {"type": "int64"},
    "float": {"type": "float"},
    "double": {"type": "double"},
    "boolean": {"type": "boolean"},
    "binary": {"type": "bytes"},
    "date": {"type": "int32", "name": "io.debezium.time.Date", "version": 1},
    "timestamp_ntz": {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1},
}
"""By type of Spark that of Kafka Connect; all others are texts."""
_TEXT = {"type": "string"}
_LONG, _INT, _BYTES = _TYPES["bigint"], _TYPES["int"], _TYPES["binary"]
_JSON: Schema = {"type": "string", "name": "io.debezium.data.Json", "version": 1}
_TOPIC = "\0topic"
"""Stands for the topic in schemas."""


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of an envelope, and its type for where the schema is beside it.

    A field that is ``required`` is never null.
    """

    name: str
    column: Column
    schema: Schema = field(default_factory=_TEXT.copy)
    required: bool = False


@dataclass(frozen=True, slots=True)
class _Form:
    """How an envelope is written: to which topic, and whether with its schema."""

    topic: Column
    with_schema: bool

    def text(self, name: str, fields: Sequence[_Field]) -> Column:
        """Return a structure as JSON; with schemas ``name`` is that of its type in its topic."""
        payload = F.to_json(_structure(fields), _JSON_OPTIONS)
        if not self.with_schema:
            return payload
        schema = json.dumps({**_schema(name, fields), "optional": False})
        parts = [F.lit(one) for one in schema.split(json.dumps(_TOPIC)[1:-1])]
        named = [part for one in parts for part in (self.topic, one)][1:]
        return F.concat(F.lit('{"schema":'), *named, F.lit(',"payload":'), payload, F.lit("}"))


def plain_envelopes(changes: DataFrame, *, with_schema: bool) -> DataFrame:
    """Return the envelopes of the changes of all collections."""
    rows = changes.where(F.col(CHANGE_TYPE) != UPDATE_BEFORE)
    kind, deleted = F.col(CHANGE_TYPE), F.col(CHANGE_TYPE) == DELETE
    form = _Form(_topic_of_rows(), with_schema)
    old = _image("before", deleted, form)
    new = _image("after", ~deleted, form)
    source = [
        *_origin(F.col("collection")),
        _Field("system", F.col("system")),
        _Field("file", F.col("file")),
        _Field("offset", F.col("offset"), _LONG),
    ]
    value = [
        _nested("before", F.when(F.col("before").isNotNull() | deleted, _structure(old)), old),
        _nested("after", F.when(kind.isin(INSERT, UPDATE_AFTER), _structure(new)), new),
        *_rest(source, _operation(kind)),
    ]
    key = F.when(~_empties(kind), form.text("Key", [_Field("key", F.col("key"), required=True)]))
    return _sent(rows, form, key, value)


def typed_envelopes(
    changes: DataFrame, collection: str, key: Sequence[str], *, with_schema: bool
) -> DataFrame:
    """Return the envelopes of the changes of one collection with these columns as primary key.

    An update that changes the primary key is two of them, as Debezium has it: the row under the old
    key is deleted, and one under the new key is made.
    """
    topic = F.regexp_replace(F.lit(f"tallystick.{collection}"), _NOT_IN_TOPICS, "_")
    form = _Form(topic, with_schema)
    kind, moved = F.col(CHANGE_TYPE), F.coalesce(F.col(KEY_CHANGED), F.lit(False))
    kind = F.when(moved, F.when(kind == UPDATE_BEFORE, DELETE).otherwise(INSERT)).otherwise(kind)
    rows = changes.withColumn(CHANGE_TYPE, kind).where(F.col(CHANGE_TYPE) != UPDATE_BEFORE)
    kind = F.col(CHANGE_TYPE)
    columns = [one for one in changes.schema if one.name not in OF_FEED]
    row = [_own(one, form) for one in (*columns, changes.schema[RESCUED])]
    value = [
        _nested("before", F.when(kind == DELETE, _structure(row)), row),
        _nested("after", F.when(kind.isin(INSERT, UPDATE_AFTER), _structure(row)), row),
        *_rest(_origin(F.lit(collection), "_"), _operation(kind)),
    ]
    named = {one.name: replace(one, required=True) for one in row}
    text = form.text("Key", [_Field("key", F.col("_key"), required=True)])
    if parts := [named[name] for name in key]:
        known = reduce(and_, (one.column.isNotNull() for one in parts))
        text = F.when(known, form.text("Key", parts)).otherwise(text)
    return _sent(rows, form, F.when(~_empties(kind), text), value)


def _own(one: StructField, form: _Form) -> _Field:
    """Return a column of a collection as Debezium has its type."""
    column, kind = F.col(f"`{one.name.replace('`', '``')}`"), one.dataType.simpleString()
    if not form.with_schema:
        return _Field(one.name, column)
    match kind:
        case "date":
            column = F.unix_date(column)
        case "timestamp_ntz":
            column = _microseconds(column)
        case _ if kind not in _TYPES:
            column = column.cast("string")
    return _Field(one.name, column, _TYPES.get(kind, _TEXT))


def _microseconds(moment: Column) -> Column:
    """Return microseconds since 1970 as the clock on the wall shows them, in no zone."""
    days = F.unix_date(moment.cast("date")).cast("bigint")
    seconds = (F.hour(moment) * 3600 + F.minute(moment) * 60).cast("bigint")
    parts = F.extract(F.lit("SECOND"), moment) * _SECOND_MICROSECONDS
    return days * _DAY_MICROSECONDS + seconds * _SECOND_MICROSECONDS + parts.cast("bigint")


def _image(body: str, has_values: Column, form: _Form) -> list[_Field]:
    values = F.when(has_values, F.col("values"))
    return [
        _Field("key", F.col("key")),
        _Field("body", F.base64(body), _BYTES),
        _Field("values", values if form.with_schema else F.try_parse_json(values), _JSON),
    ]


def _origin(table: Column, prefix: str = "") -> list[_Field]:
    """Return what both feeds tell of where a change is from."""
    return [
        _Field("connector", F.lit("tallystick")),
        _Field("name", F.col(f"{prefix}log")),
        _Field("ts_ms", F.unix_millis("_commit_timestamp"), _LONG),
        _Field("table", table),
        _Field("txId", F.col(f"{prefix}transaction")),
        _Field("gtrid", F.lower(F.hex(f"{prefix}gtrid"))),
        _Field("commit_version", F.col("_commit_version"), _LONG),
        _Field("ordinal", F.col(f"{prefix}ordinal"), _INT),
    ]


def _rest(source: Sequence[_Field], operation: Column) -> list[_Field]:
    return [
        replace(_nested("source", _structure(source), source), required=True),
        _Field("op", operation, required=True),
        _Field("ts_ms", F.unix_millis("_commit_timestamp"), _LONG),
    ]


def _sent(rows: DataFrame, form: _Form, key: Column, value: Sequence[_Field]) -> DataFrame:
    text = form.text("Envelope", value)
    return rows.select(form.topic.alias("topic"), key.alias("key"), text.alias("value"))


def _topic_of_rows() -> Column:
    """Return ``tallystick.SYSTEM.TABLE``, in the letters that Kafka allows; never with a number."""
    named = F.nullif("collection", F.lit(""))
    table = F.when(F.col("collection").rlike(_NUMBER), F.lit(_UNNAMED)).otherwise(named)
    whole = F.concat_ws(".", F.lit("tallystick"), F.col("system"), table)
    return F.regexp_replace(whole, _NOT_IN_TOPICS, "_")


def _operation(kind: Column) -> Column:
    pairs = [F.lit(part) for pair in _OPERATIONS.items() for part in pair]
    return F.create_map(*pairs)[kind]


def _empties(kind: Column) -> Column:
    return kind == Kind.TRUNCATE.value


def _structure(fields: Iterable[_Field]) -> Column:
    return F.struct(*(one.column.alias(one.name) for one in fields))


def _nested(name: str, column: Column, fields: Sequence[_Field]) -> _Field:
    kind = {"before": "Value", "after": "Value"}.get(name, "Source")
    return _Field(name, column, _schema(kind, fields))


def _schema(name: str, fields: Iterable[_Field]) -> dict[str, Any]:
    described = [{**one.schema, "optional": not one.required, "field": one.name} for one in fields]
    return {"type": "struct", "name": f"{_TOPIC}.{name}", "fields": described}
