"""What a stream has not read yet, log by log: what a progress report of Spark tells of it.

In: how far a stream came, and the logs as they are. Out: JSON for the report, and `backlog`, which
makes values of a report. Spark has no hook for metrics of a Python data source: it asks for its
latest offset alone, after each step, and shows that as text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tallystick.pipeline.fingerprint import fingerprint
from tallystick.pipeline.source.positions import UNREAD, LogPosition, Position
from tallystick.pipeline.source.tailer import Tailer
from tallystick.storage.source import is_remote
from tallystick.systems.registry import NATIVE

_BEHIND = "behind"
_LOOKS = 1_000
"""How many looks at a log that is not read up are remembered; then every second one is."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What of one log was there and not read when a step ended.

    Attributes:
        log: its system and path.
        bytes: from the last record that was handed on up to the newest; of files in between the
            whole size.
        records: how many these are in a native log; None elsewhere, as nothing counts them.
        oldest_unread: a moment at which the oldest of them was there, by times of files and looks
            of this query; None if there are none, and in object stores before the second look.
        losses: how often the stream went on without records that are gone or damaged.
        loss: the last of these, in words.
    """

    log: str
    bytes: int
    records: int | None
    oldest_unread: datetime | None
    losses: int
    loss: str


def backlog(progress: Mapping[str, Any]) -> list[Backlog]:
    """Return what was not read when a step ended, by log; nothing before a query's first step.

    Args:
        progress: a report of a query that follows logs, as ``query.lastProgress`` is.
    """
    found = []
    for source in progress["sources"]:
        end, latest = _offset(source["endOffset"]), _offset(source["latestOffset"])
        for log, entry in sorted(latest.items()):
            if isinstance(entry, dict) and _BEHIND in entry:
                behind, reached = entry[_BEHIND], end.get(log, UNREAD)
                oldest = behind["oldest_unread"]
                moment = None if oldest is None else datetime.fromtimestamp(oldest, UTC)
                losses = reached["losses"], reached["loss"]
                one = Backlog(log, behind["bytes"], behind["records"], moment, *losses)
                found.append(one)
    return found


def _offset(text: Any) -> dict[str, Any]:
    """Return an offset by log; nothing for those of other sources, which may be any JSON."""
    found = json.loads(text) if isinstance(text, str) else text
    return found if isinstance(found, dict) else {}


@dataclass(slots=True)
class Looks:
    """What was seen of logs at the ends of steps of one query."""

    _ends: dict[str, list[tuple[tuple[int, int], float]]] = field(default_factory=dict)
    """By log where it ended when it was looked at, and since when that was there."""

    def report(self, tailer: Tailer, reached: Position) -> dict[str, Any]:
        """Return the present ends of logs, each with what of the log is not read."""
        return {
            key: {**end, _BEHIND: self._behind(key, reached.get(key, UNREAD), end, files)}
            for key, (end, files) in tailer.ends().items()
        }

    def _behind(
        self, key: str, entry: LogPosition, end: LogPosition, files: list[tuple[int, str]]
    ) -> dict[str, Any]:
        if entry["identity"] not in (None, end["identity"]):
            entry = UNREAD
        began, ended = (entry["number"], entry["offset"]), (end["number"], end["offset"])
        unread = [one for one in files if began[0] <= one[0] <= ended[0]] if began < ended else []
        sizes = {path: fingerprint(path) for _, path in unread}
        size = sum(
            (ended[1] if number == ended[0] else sizes[path][0])
            - (began[1] if number == began[0] else 0)
            for number, path in unread
        )
        looks = [one for one in self._ends.get(key, ()) if one[0] > began]
        changed = [sizes[path][1] / 1e9 for _, path in unread[:1] if not is_remote(path)]
        if unread:
            looks.append((ended, time.time()))
        self._ends[key] = looks[::2] if len(looks) > _LOOKS else looks
        # The places of a native log are the numbers of its records.
        counted = key.startswith(f"{NATIVE} ") and end["place"] is not None
        records = max((end["place"] or 0) - (entry["place"] or 0), 0) if counted else None
        oldest = min([*changed, *(moment for _, moment in looks)], default=None)
        return {"bytes": max(size, 0), "records": records, "oldest_unread": oldest}
