"""The judgement over Arrow arrays, as Spark hands them over.

In: arrays of structures. Out: arrays of structures of the schemas below, made by the plain
functions of this package.
"""

from __future__ import annotations

import pyarrow as pa

from tallystick.reconcile.copies import copy_of, pairs_of
from tallystick.reconcile.nameless import matched
from tallystick.reconcile.rows import judge_row, named_logs, pattern_of

BRANCH = pa.struct(
    [
        ("system", pa.string()),
        ("log", pa.string()),
        ("resource", pa.string()),
        ("bqual", pa.binary()),
        ("state", pa.string()),
        ("due", pa.string()),
    ]
)
"""``due`` is what is due for this branch, null unless it is in doubt."""

GLOBAL_TRANSACTIONS = pa.schema(
    [
        ("format_id", pa.int32()),
        ("gtrid", pa.binary()),
        ("owner", pa.string()),
        ("coordinator", pa.string()),
        ("decision", pa.string()),
        ("branches", pa.list_(pa.field("element", BRANCH))),
        ("resolution", pa.string()),
        ("alarm", pa.string()),
        ("evidence", pa.string()),
        ("last_time", pa.int64()),
        ("clock", pa.string()),
    ]
)
"""One row is a global transaction over all logs; times are those of its coordinator."""

_RESOURCE = pa.struct([("journal", pa.string()), ("name", pa.string()), ("log", pa.string())])

RESOURCES = pa.list_(pa.field("element", _RESOURCE))
"""Which log a resource name in a coordinator's journal means."""

_LOG = pa.struct([("log", pa.string()), ("system", pa.string())])

PATTERN = pa.struct(
    [
        ("journal", pa.string()),
        ("names", pa.list_(pa.field("element", pa.string()))),
        ("logs", pa.list_(pa.field("element", _LOG))),
    ]
)
"""The names in a decision and the logs with a branch, null where there is no decision."""

_PAIR = pa.struct([("log", pa.string()), ("other", pa.string()), ("ahead", pa.int32())])

PAIRS = pa.list_(pa.field("element", _PAIR))
"""Two logs of one system, by name, and which is further: ``log`` (1), ``other`` (-1), none (0)."""

COPY = pa.struct([("log", pa.string()), ("original", pa.string())])
"""A log, and the log that it is a copy of."""

_UNDONE = pa.struct(
    [
        ("format_id", pa.int32()),
        ("gtrid", pa.binary()),
        ("system", pa.string()),
        ("log", pa.string()),
        ("state", pa.string()),
        ("evidence_file", pa.string()),
        ("evidence_offset", pa.int64()),
        ("evidence_type", pa.string()),
    ]
)

UNDONE = pa.list_(pa.field("element", _UNDONE))
"""Ends without a name of one log, with the global transactions that they belong to."""


def judged(rows: pa.Array) -> pa.Array:
    """Return the judgement of every row, as structures in the schema `GLOBAL_TRANSACTIONS`."""
    answers = [judge_row(row) for row in rows.to_pylist()]
    return pa.array(answers, type=pa.struct(list(GLOBAL_TRANSACTIONS)))


def patterns_of(parts: pa.Array) -> pa.Array:
    """Return the `PATTERN` of every row, each of which is the parts of one global transaction."""
    return pa.array([pattern_of(row) for row in parts.to_pylist()], type=PATTERN)


def assigned(patterns: pa.Array) -> pa.Array:
    """Return the `RESOURCES` of each owner, from its patterns with their counts."""
    return pa.array([named_logs(rows) for rows in patterns.to_pylist()], type=RESOURCES)


def copy_pairs(parts: pa.Array) -> pa.Array:
    """Return the `PAIRS` of every row, each of which is the parts of one global transaction."""
    return pa.array([list(pairs_of(row)) for row in parts.to_pylist()], type=PAIRS)


def copies_of(pairs: pa.Array) -> pa.Array:
    """Return the `COPY` of every pair of logs."""
    return pa.array([copy_of(pair) for pair in pairs.to_pylist()], type=COPY)


def undone(logs: pa.Array) -> pa.Array:
    """Return the `UNDONE` of every log, from what claims a branch there and its bare ends."""
    answers = [
        [
            bare | {"format_id": claim["format_id"], "gtrid": claim["gtrid"]}
            for claim, bare in matched(row["claims"], row["bare"])
        ]
        for row in logs.to_pylist()
    ]
    return pa.array(answers, type=UNDONE)
