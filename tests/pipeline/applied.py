"""Typed feeds applied, and what `SELECT` showed: both as rows of plain values that are compared."""

from __future__ import annotations

import datetime
import decimal
import json
import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from tallystick.arrow.schemas import CHANGES, batch_of, json_text
from tallystick.pipeline.change_feed import feed
from tallystick.pipeline.options import parse
from tallystick.pipeline.planning import Piece, find, tasks
from tallystick.pipeline.source.batch import with_collection
from tallystick.pipeline.task import batches_in, execute, fed
from tallystick.pipeline.typed import OF_FEED, typed
from tallystick.systems.protocol import Collection, KnowsRowsBefore, LogReading, ReadOptions
from tallystick.systems.registry import system

Row = tuple[Any, ...]
Shown = dict[str, tuple[list[tuple[str, str]], list[Row]]]
"""By name of a table names and types of its columns, and its rows."""

_EXACT = decimal.Context(prec=100)
_DECIMALS = ("DECIMAL", "NUMERIC")
_BYTES = ("BLOB", "BINARY", "BIT DATA", "VARBINARY", "LONGVARBINARY")


def feed_of(path: Path, collection: str, **given: str) -> list[dict[str, Any]]:
    """The rows of the typed feed of a collection."""
    wanted = {"path": str(path), "table": "changes", "collection": collection} | given
    options = with_collection(parse(wanted))
    found = (batch for task in tasks(options) for batch in execute(task, options))
    return _ordered(row for batch in found for row in batch.to_pylist())


def histories(path: Path, collections: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """The rows of each collection from before its log, as a feed would insert them, then its feed.

    The first is asked for as a query does. Of the others, one reading of the log gives what would
    be found and judged again for each.
    """
    (source,) = find((str(path),)).logs
    reading = system(source.system).read(source, ReadOptions())
    assert isinstance(reading, KnowsRowsBefore)
    known = {one.name: one for one in reading.collections()}
    for at, name in enumerate(collections):
        kinds = tuple((one.name, one.kind) for one in known[name].columns)
        rows = [
            {"system": "s", "log": "l", "kind": "add", "collection": name, "key": key,
             "values": json_text(values), "commit_sequence": 0, "ordinal": 0}
            for key, values in reading.rows_before(name)
        ]  # fmt: skip
        batches = typed(feed([batch_of(rows, CHANGES)]), name, kinds)
        before = [row for one in batches for row in one.to_pylist()]
        yield before + (_feed_in(reading, known[name], kinds) if at else feed_of(path, name))


def _feed_in(
    reading: LogReading, one: Collection, kinds: tuple[tuple[str, str], ...]
) -> list[dict[str, Any]]:
    options = parse({"path": reading.source.path, "table": "changes", "collection": one.name})
    options = replace(options, typed=kinds, key=one.key)
    found = fed(batches_in(reading, Piece(reading.source), "changes", options), options)
    return _ordered(row for batch in found for row in batch.to_pylist())


def _ordered(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["_commit_version"], row["_ordinal"]))


def applied(rows: Iterable[dict[str, Any]], heads: list[tuple[str, str]]) -> list[Row]:
    """The rows of a collection with these columns after all changes of its feed, in order.

    Where the feed tells the row before a change, it is the one that was there.
    """
    table: dict[str, Row] = {}
    for row in rows:
        key, whole = row["_key"], row | json.loads(row["_rescued"] or "{}")
        assert [*row][: -len(OF_FEED)] == [name for name, _ in heads]
        image = tuple(_comparable(whole[name], kind) for name, kind in heads)
        match row["_change_type"]:
            case "truncate":
                table.clear()
            case "delete":
                assert table.pop(key, image) == image
            case "update_preimage":
                assert table.get(key, image) == image
            case "insert" | "update_postimage":
                table[key] = image
    return sorted(table.values(), key=repr)


def rows_shown(lines: Iterable[str]) -> Shown:
    """Rows as the engine's driver printed them: ``TABLE`` and ``ROW`` lines, bytes in hex."""
    found: Shown = {}
    heads: list[tuple[str, str]] = []
    rows: list[Row] = []
    for line in lines:
        word, *values = line.rstrip("\n").split("\t")
        if word == "TABLE":
            heads = [(one.rpartition("=")[0], one.rpartition("=")[2]) for one in values[1:]]
            rows = []
            found[values[0]] = heads, rows
        elif word == "ROW":
            kinds = [kind for _, kind in heads]
            rows.append(tuple(_shown(*one) for one in zip(values, kinds, strict=True)))
    return {name: (heads, sorted(rows, key=repr)) for name, (heads, rows) in found.items()}


def _shown(text: str, kind: str) -> object:
    if text == "-":
        return None
    data = bytes.fromhex(text[1:])
    if any(one in kind for one in _BYTES):
        return data
    if kind == "UUID" and text[0] == "h":
        return str(uuid.UUID(bytes=data))
    shown = data.decode("utf-8", "surrogatepass")
    if kind in ("REAL", "DOUBLE", "FLOAT"):
        return repr(_real(float(shown)) if kind == "REAL" else float(shown))
    if kind.startswith("TIMESTAMP") and "ZONE" not in kind:
        seconds, _, digits = shown.partition(".")
        return f"{seconds}.{digits[:6].ljust(6, '0')}"
    if kind in _DECIMALS:
        return str(Decimal(shown).normalize(_EXACT))
    return shown.lower() if kind == "BOOLEAN" else shown


def _real(number: float) -> float:
    found: float = struct.unpack("f", struct.pack("f", number))[0]
    return found


def _comparable(value: object, kind: str) -> object:
    if kind in _DECIMALS and value is not None:
        return str(Decimal(str(value)).normalize(_EXACT))
    match value:
        case bool():
            return str(value).lower()
        case str() if kind.startswith("TIMESTAMP") and "ZONE" not in kind:
            return _shown("s" + value.encode().hex(), kind)  # it was rescued
        case float():
            return repr(value)  # equal for no numbers, too, and other than a zero below zero
        case None | str() | bytes():
            return value
        case datetime.datetime():
            return value.isoformat(" ", "microseconds")
        case _:
            return str(value)
