"""Names of logs as tables and messages give them.

In: where a log lies. Out: its name, different for every log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tallystick.arrow.texts import whole_text
from tallystick.storage.source import logical_name
from tallystick.systems.protocol import LogSource


def log_name(source: LogSource) -> str:
    """Return the folder of a log, with its name where the folder holds several."""
    return f"{source.path}/{source.name}" if source.name else source.path


def row_name(source: LogSource) -> str:
    """Return `log_name` as the column ``log`` has it, in which names of other encodings are not."""
    return str(whole_text(log_name(source)))


def path_alone(source: LogSource) -> str:
    """Return a path that names a log alone: a file of it where others lie in its folder."""
    return source.files[0] if source.name and source.files else source.path


def names_apart(sources: Iterable[LogSource]) -> dict[LogSource, str]:
    """Return the name that tells each log from others of its folder; empty where none lie.

    A log that a file names has it also where that file alone was asked for.
    """
    every = list(sources)
    count = Counter(one.path for one in every)
    return {
        one: one.name if count[one.path] > 1 or one.name in map(logical_name, one.files) else ""
        for one in every
    }


def places_apart(sources: Iterable[LogSource]) -> dict[LogSource, str]:
    """Return the folder of each log, with its name where that tells it from others there."""
    names = names_apart(sources)
    return {one: f"{one.path}/{name}" if name else one.path for one, name in names.items()}
