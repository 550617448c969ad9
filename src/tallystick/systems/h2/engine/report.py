"""The engine's verdict in the oracle's words and keys.

In: an `EngineResult`. Out: `records`, `stage_ends`, `first_section`, `last_section`, `recovery`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tallystick.systems.h2.engine.opening import EngineResult
from tallystick.systems.h2.engine.recovery import Recovery
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read.records import entry_fields
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.read.stream import LogStream


def engine_part(result: EngineResult) -> dict[str, Any]:
    """Return what the engine's recovery reads and decides."""
    stream, recovery = result.file.stream, result.recovery
    if stream is None or recovery is None:
        return {
            "records": [],
            "stage_ends": [],
            "first_section": None,
            "last_section": None,
            "recovery": result.opening.to_json(),
        }
    return {
        "records": list(_records(stream, result.file.zone, recovery)),
        "stage_ends": [_stage(stage, recovery) for stage in result.opening.stages],
        "first_section": None if recovery.last_section is None else 0,
        "last_section": recovery.last_section,
        "recovery": result.opening.to_json(),
    }


def _records(stream: LogStream, zone: Zone, recovery: Recovery) -> Iterator[dict[str, Any]]:
    for entry in Scan(stream, zone).entries():
        page, offset = stream.place(entry.start)
        yield {
            "pos": entry.pos,
            "section": entry.section,
            "code": entry.code,
            "page": page,
            "offset": offset,
            "type": entry.type,
            **entry_fields(entry),
            **recovery.decisions(entry),
        }


def _stage(stage: int, recovery: Recovery) -> dict[str, Any]:
    return {
        "stage": stage,
        "end": recovery.end.text,
        "empty": recovery.empty,
        "sessions": [
            {
                "session": state.session,
                "last_commit_section": state.commit_section,
                "last_commit_pos": state.commit_pos,
                "in_doubt": state.in_doubt,
            }
            for state in recovery.ordered_sessions()
        ],
    }
