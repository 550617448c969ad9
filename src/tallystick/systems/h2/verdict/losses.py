"""How much a restart would lose: commits and rows, counted where the log tells.

In: an `EngineResult` or its stream. Out: a `Loss` for each way to lose something.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tallystick.systems.h2.engine.digest import LogDigest
from tallystick.systems.h2.engine.opening import EngineResult
from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read.files import OpenedFile
from tallystick.systems.h2.read.salvage import entries_after, salvaged
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.read.stream import LogStream


@dataclass(frozen=True, slots=True)
class Loss:
    """Commits and row changes that a restart drops, as far as they can be counted."""

    commits: int = 0
    rows: int = 0

    def __str__(self) -> str:
        """Return both numbers in words."""
        return f"{self.commits} commits and {self.rows} row changes"


def _counted(entries: Iterable[Entry]) -> Loss:
    commits = rows = 0
    for entry in entries:
        commits += entry.code == Type.COMMIT
        rows += entry.session_bound
    return Loss(commits, rows)


def after_damage(stream: LogStream, zone: Zone) -> Loss:
    """Count what stands on the pages of the log that the engine does not reach."""
    every = salvaged(stream.pages, stream, zone)
    return _counted(entry for entry, _, run in every if run.pages[0] in stream.lost)


def after_end(digest: LogDigest, zone: Zone) -> Loss:
    """Count what stands on the pages after the one where the engine's scan ends early."""
    return _counted(entries_after(digest.stream, digest.known_to, zone))


def after_header(file: OpenedFile) -> Loss:
    """Count what the log holds that the header in force should name."""
    if file.other is not None:
        return _counted(Scan(file.other, file.zone).entries())
    if file.stream is None:
        return Loss()
    dropped, every = set(file.stream.dropped), salvaged(file.stream.pages, file.stream, file.zone)
    return _counted(entry for entry, _, run in every if run.pages[0] in dropped)


def after_redo(result: EngineResult) -> Loss:
    """Count the commits and the committed rows after the place where redo ended."""
    stream, recovery = result.file.stream, result.recovery
    if stream is None or recovery is None:
        return Loss()
    first = result.opening.redone_before
    return _counted(
        entry
        for entry in Scan(stream, result.file.zone).entries()
        if entry.pos >= first and (not entry.session_bound or recovery.redo(entry))
    )


def lost_with(result: EngineResult, code: str) -> Loss | None:
    """Return what a restart loses with a finding of this code; None: it is lost already."""
    stream, zone = result.file.stream, result.file.zone
    if code == "file-cut-short":
        return None
    if code == "partial-redo":
        return after_redo(result)
    if code == "header-drops-log":
        return after_header(result.file)
    if stream is not None and code == "lost-behind-damage":
        return after_damage(stream, zone)
    if result.digest is not None and code == "log-cut-short":
        return after_end(result.digest, zone)
    return Loss()
