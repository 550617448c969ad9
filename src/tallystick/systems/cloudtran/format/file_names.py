"""Names of log files: ``<base>-<serial, 10 digits>-<UTC time>.<extension>``.

In: a file name. Out: its parts, or None for a file that is not of a log; and back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"(?P<base>.+)-(?P<serial>\d{10})-(?P<time>\d{8}T\d{6}Z)\.(?P<extension>[^.]+)")


@dataclass(frozen=True, slots=True)
class FileName:
    """``<base>-<serial, 10 digits>-<UTC time>.<extension>``; files are ordered by serial."""

    base: str
    serial: int
    time: str
    extension: str

    def __str__(self) -> str:
        return f"{self.base}-{self.serial:010d}-{self.time}.{self.extension}"


def parse_name(name: str) -> FileName | None:
    """Return the parts of a log file's name, None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    base, serial, time, extension = match.group("base", "serial", "time", "extension")
    return FileName(base, int(serial), time, extension)
