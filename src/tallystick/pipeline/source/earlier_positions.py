"""Positions of earlier versions: they had an entry per file, and forgot files that were gone.

In: positions as a checkpoint has them, and the logs that are there. Out: positions by log.

An entry by file was a list: identity, generation, the offset after the last record read, digests,
rewrites and, where changes were followed, the name of the log and the place of that record. Those
of the first versions end after the offset, or before the name. The newest file of a log, by its
identity and generation, tells how far the log was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from tallystick.errors import TallystickError
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.source.followed_log import FollowedLog
from tallystick.pipeline.source.positions import UNREAD, LogPosition, Position, key_of
from tallystick.reading.discovery import parent
from tallystick.systems.protocol import LogSource


def read_on(
    position: Mapping[str, Any], logs: Iterable[LogSource], options: SourceOptions
) -> Position:
    """Return a position with one entry per log.

    Entries of files whose logs are not there stay as they are: they are read on once they come.
    """
    found = dict(position)
    earlier = {path: entry for path, entry in position.items() if isinstance(entry, list)}
    for source in logs if earlier else ():
        folder = source.path.rstrip("/")
        ours = {path: entry for path, entry in earlier.items() if path in source.files}
        if not ours:  # all of its files were given up since
            ours = {path: entry for path, entry in earlier.items() if parent(path) == folder}
        if ours:
            found[key_of(source)] = _entry(source, ours, options)
        for path in earlier:
            if parent(path) == folder:
                found.pop(path, None)
    return cast(Position, found)


def _entry(
    source: LogSource, earlier: Mapping[str, list[Any]], options: SourceOptions
) -> LogPosition:
    """Return the entry of a log, from those of its files."""
    log = FollowedLog(source, options.reading)
    path = max(earlier, key=lambda one: ([part or 0 for part in earlier[one][:2]], one))
    entry = earlier[path]
    numbers = {file: number for number, file in log.order}
    number = numbers.get(path, entry[_number_at(log)] or 0)
    return {
        **UNREAD,
        "file": path,
        "number": number,
        "identity": entry[0] if log.identity is not None else None,
        "offset": entry[2],
        "place": entry[6] if len(entry) > 6 else _place(log, path, entry[2]),
        "digests": entry[3] if len(entry) > 3 else "",
        "known": number,
        "since": number,
        "begun": number,
        "rewrites": entry[4] if len(entry) > 4 else 0,
    }


def _number_at(log: FollowedLog) -> int:
    """Return which of identity and generation is what now orders the files of a log."""
    return int(not any(log.lives[path].identity == number for number, path in log.order))


def _place(log: FollowedLog, path: str, offset: int) -> int | None:
    """Return the place of the record that ends at an offset; None if it cannot be had."""
    try:
        ends = log.ends(path, offset) if path in log.lives else None
    except (TallystickError, OSError):
        return None
    if ends is None or offset not in ends:
        return None
    return int(log.places[int((ends < offset).sum())])
