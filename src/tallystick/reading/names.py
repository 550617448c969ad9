"""Names of logs as tables and messages give them.

In: where a log lies. Out: its name, different for every log.
"""

from __future__ import annotations

from tallystick.systems.protocol import LogSource


def log_name(source: LogSource) -> str:
    """Return the folder of a log, with its name where the folder holds several."""
    return f"{source.path}/{source.name}" if source.name else source.path
