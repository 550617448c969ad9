"""The engine's verdict in the oracle's words and keys.

In: an `EngineResult`. Out: `records`, `stage_ends`, `first_section`, `last_section`, `recovery`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tallystick.systems.h2.engine.opening import EVERY, EngineResult, Opening
from tallystick.systems.h2.engine.recovery import REDO_STAGE, Recovery
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
    records = list(_records(result, stream))
    last = recovery.last_section
    if result.opening.read != EVERY:
        last = records[-1]["section"] if records else None
    return {
        "records": records,
        "stage_ends": [_stage(stage, recovery, result.opening) for stage in result.opening.stages],
        "first_section": None if last is None else 0,
        "last_section": last,
        "recovery": result.opening.to_json(),
    }


def _records(result: EngineResult, stream: LogStream) -> Iterator[dict[str, Any]]:
    for entry in Scan(stream, result.file.zone).entries():
        if entry.pos > result.opening.read:
            return
        page, offset = stream.place(entry.start)
        yield {
            "pos": entry.pos,
            "section": entry.section,
            "code": entry.code,
            "page": page,
            "offset": offset,
            "type": entry.type,
            **entry_fields(entry),
            **result.decisions(entry),
        }


def _stage(stage: int, recovery: Recovery, opening: Opening) -> dict[str, Any]:
    partial = opening.partial if stage == REDO_STAGE else ""
    return {
        "stage": stage,
        "end": f"quiet: {partial}" if partial else recovery.end.text,
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
