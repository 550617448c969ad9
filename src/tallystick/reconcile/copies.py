"""Which logs are copies of others: a branch lives in one log, so two that hold it are copies.

In: global transactions of which several logs of one system hold the same branch, or the same
decision. Out: pairs of such logs with what distinguishes the original from the copy. A
copy is out of date, and it would make every resource name ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

import pyarrow as pa

from tallystick.records import State

_PAIR = pa.struct([("log", pa.string()), ("other", pa.string()), ("ahead", pa.int32())])

PAIRS = pa.list_(pa.field("element", _PAIR))
"""Two logs of one system, by name, and which is further: ``log`` (1), ``other`` (-1), none (0)."""

_ENDED = frozenset({State.COMMITTED, State.ROLLED_BACK, State.HEURISTIC})
_DECIDED = frozenset({State.COMMITTING, State.ROLLING_BACK})
_OPEN = frozenset({State.PREPARED, State.UNDECIDED})


def copy_pairs(parts: pa.Array) -> pa.Array:
    """Return the `PAIRS` of every row, each of which is the parts of one global transaction."""
    return pa.array([list(_pairs(row)) for row in parts.to_pylist()], type=PAIRS)


def _pairs(parts: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    held: dict[tuple[str, bytes | None], dict[str, int]] = {}
    for part in parts:
        logs = held.setdefault((part["system"], part["bqual"]), {})
        logs[part["log"]] = max(_progress(State(part["state"])), logs.get(part["log"], 0))
    for logs in held.values():
        for (log, mine), (other, its) in combinations(sorted(logs.items()), 2):
            yield {"log": log, "other": other, "ahead": (mine > its) - (mine < its)}


def _progress(state: State) -> int:
    """Return how far a transaction has come: 1 open, 2 decided, 3 ended."""
    return next((n for n, known in ((3, _ENDED), (2, _DECIDED), (1, _OPEN)) if state in known), 0)
