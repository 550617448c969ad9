"""Which logs are copies of others: a branch lives in one log, so two that hold it are copies.

In: names of logs, global transactions of which several logs of one system hold the same branch, or
the same decision. Out: pairs of such logs, and which of the two is the copy. A copy is
out of date, and it would make every resource name ambiguous.

Of two logs that hold the same, the original is the one with the younger transactions; else the one
that came further with what both hold (compaction can take that back, so it does not come first);
else, where they are the same, the one with the shorter name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

from tallystick.reconcile.ids import SUFFIX, TIME
from tallystick.records import State

_ENDED = frozenset({State.COMMITTED, State.ROLLED_BACK, State.HEURISTIC})
_DECIDED = frozenset({State.COMMITTING, State.ROLLING_BACK})
_OPEN = frozenset({State.PREPARED, State.UNDECIDED})


def is_renamed(log: str, original: str) -> bool:
    """Return True for ``bank.h2.db.before-operator`` beside ``bank.h2.db``: an older copy.

    Both are logs of one file and of one system, in one folder.
    """
    return log.startswith(f"{original}.")


def pairs_of(parts: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the pairs of logs that hold the same branch or decision of one global transaction.

    ``ahead`` is 1 where ``log`` came further with it, -1 where ``other`` did, else 0.
    """
    held: dict[tuple[str, bytes | None], dict[str, int]] = {}
    for part in parts:
        logs = held.setdefault((part["system"], part["bqual"]), {})
        logs[part["log"]] = max(_progress(State(part["state"])), logs.get(part["log"], 0))
    for logs in held.values():
        for (log, mine), (other, its) in combinations(sorted(logs.items()), 2):
            yield {"log": log, "other": other, "ahead": (mine > its) - (mine < its)}


def copy_of(pair: dict[str, Any]) -> dict[str, str]:
    """Return which log of a pair is the copy, and its original.

    ``ahead`` is the sum over all that both hold, ``newest`` and ``newest_other`` are the
    greatest `age` in each.
    """
    log, other = pair["log"], pair["other"]
    one = bytes(pair["newest"]), pair["ahead"], -len(log)
    two = bytes(pair["newest_other"]), 0, -len(other)
    further = one > two or (one == two and log < other)
    return {"log": other, "original": log} if further else {"log": log, "original": other}


def age(gtrid: bytes) -> bytes:
    """Return the bytes of a gtrid that grow with time."""
    return gtrid[-SUFFIX:][:TIME] if len(gtrid) >= SUFFIX else b""


def _progress(state: State) -> int:
    """Return how far a transaction has come: 1 open, 2 decided, 3 ended."""
    return next((n for n, known in ((3, _ENDED), (2, _DECIDED), (1, _OPEN)) if state in known), 0)
