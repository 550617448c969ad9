"""What a run has read: per log, its files with size and time of change.

In: the logs of a plan. Out: a fingerprint as plain JSON, to be compared with that of the
last run. A log whose fingerprint is the same holds nothing new.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tallystick.pipeline.fingerprint import fingerprint
from tallystick.pipeline.planning import Plan
from tallystick.reading.names import row_name

VERSION = 3
"""Changes when the tables do: an older state makes a run build everything anew."""


@dataclass(slots=True)
class RunState:
    """What the tables hold.

    ``logs`` has a fingerprint by log, ``settings`` what else the rows depend on.
    """

    settings: dict[str, Any]
    logs: dict[str, list[list[Any]]] = field(default_factory=dict)
    problems: list[dict[str, Any]] = field(default_factory=list)
    """Findings of the search for logs: they change no row but their own."""
    coordinators: list[list[Any]] = field(default_factory=list)
    """Fingerprints of the small files of coordinators: they change what is judged of all logs."""
    generation: int = field(default=0, compare=False)
    """Number of the run that wrote the tables."""
    bundles: dict[str, str] = field(default_factory=dict, compare=False)
    """By log the bundle that its rows are in, where tables are written in bundles."""
    files: dict[str, dict[str, int]] = field(default_factory=dict, compare=False)
    """By table its files with their sizes; empty where this was not noted."""

    def changed(self, last: RunState | None) -> set[str]:
        """Return logs whose rows must be made anew."""
        if last is None or last.settings != self.settings:
            return set(self.logs)
        return {log for log, files in self.logs.items() if last.logs.get(log) != files}

    def vanished(self, last: RunState | None) -> set[str]:
        """Return logs that are gone."""
        return set() if last is None else set(last.logs) - set(self.logs)


def state_of(plan: Plan, settings: dict[str, Any]) -> RunState:
    """Return the state of the logs as they are now."""
    found = [finding.to_dict() for finding in plan.problems]
    beside = [[file, *fingerprint(file)] for one in plan.coordinators() for file in one.files]
    state = RunState({"version": VERSION} | settings, problems=found, coordinators=beside)
    for log in plan.logs:
        marks = [[log.system, file, *fingerprint(file)] for file in log.files]
        state.logs.setdefault(row_name(log), []).extend(marks)
    return state


def load(path: Path) -> RunState | None:
    """Return the state that the last good run left; None if there is none, or it cannot be used."""
    try:
        value = json.loads(path.read_text())
        return from_json(value)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def from_json(value: dict[str, Any]) -> RunState:
    """Return a state from its JSON form. Raises `KeyError`, `TypeError` if it is none."""
    given = {"files": {}, "coordinators": []} | value  # runs of earlier versions noted none
    state = RunState(**{one.name: given[one.name] for one in fields(RunState)})
    for name, known in asdict(RunState({})).items():
        if type(getattr(state, name)) is not type(known):
            raise TypeError(f"{name} is no {type(known).__name__}")
    return state


def save(path: Path, state: RunState) -> None:
    """Leave the state, whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(state)))
    os.replace(partial, path)  # noqa: PTH105 - replaces, unlike Path.rename on some systems
