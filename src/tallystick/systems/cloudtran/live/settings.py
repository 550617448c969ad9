"""The settings of a live block log: the documented properties in snake case.

In: keyword arguments, text values by property name (``ct.logger.fileSizeMB``, ``fileSizeMB`` and
``file_size_mb`` all name the same), or a properties file. Out: a frozen `LogSettings`, checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from tallystick.systems.cloudtran.format import layout
from tallystick.systems.cloudtran.read.detect import DEFAULT_BASE, DEFAULT_EXTENSION
from tallystick.systems.java_properties import parse_properties

MEBIBYTE = 1 << 20
FILE_SIZE_MB_MAX = 4095
WRITE_BLOCKS_MIN = 4
FILE_DATE_PATTERN = "yyyyMMdd'T'HHmmss'Z'"
_PREFIX = "ct.logger."


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Settings of one block log; `ValueError` for a value outside its range."""

    thread_count: int = 3
    """Workers that prepare full groups while another one is written; 1 is enough."""
    file_size_mb: int = 20
    """Size in MiB at which the log rolls over to the next file, 1 to 4095."""
    max_write_size: int = 5 * MEBIBYTE
    """Bytes of one block, headers and padding included; at least four disk blocks."""
    disposer: str = "delete"
    """The dotted name of what disposes of redundant files: a class with a method ``dispose`` that
    takes a path, an object with one, or a function. ``delete`` deletes them."""
    directory: str = ""
    """The folder of the log, where none is given to the log itself."""
    log_before_commit: bool = True
    """A commit returns when its entry is durable."""
    log_after_commit: bool = False
    """A commit returns before its entry is written: a crash loses the last ones."""
    disk_block_size: int = 4096
    """A power of two, 512 to 65536; the same over the life of a directory."""
    file_base_name: str = DEFAULT_BASE
    file_date_pattern: str = FILE_DATE_PATTERN
    """The form of the time in file names; there is no other."""
    file_extension: str = DEFAULT_EXTENSION
    compress: bool = False
    disk_space_low_warning_count: int = 10
    disk_space_low_busy_count: int = 3
    """Free space in files of full size: below the first number a warning, below this one busy."""
    zap_log_files: bool = False
    zap_log_files_confirmed: bool = False
    """Delete all log files at the start; needs both settings."""
    write_delay_micros: int = 0
    """Microseconds that a group waits for more entries."""
    persisted_flush_millis: int = 200
    """Milliseconds after which persisted entries are written even if no caller commits."""
    on_damage: str = "stop"
    """``stop`` refuses to open a log that has lost blocks, ``report`` goes on without them."""
    on_incomplete: str = "fail"
    """``fail`` refuses to open a log with pending transactions, ``replay`` opens it."""
    carry_forward_files: int = 50
    """Number of files from which on entries of the oldest one are carried forward."""
    carry_forward_max: int = 100
    """Largest number of open transactions that are carried forward at a time."""
    max_transaction_size: int = 256 * MEBIBYTE
    """Bytes of the largest block; a larger transaction is refused."""
    dispose_on_close_seconds: float = 10.0
    """Seconds that closing waits for the disposal of removable files."""
    sync: str = "data"
    """``data``, ``full`` (directory entries too, each time), or ``none`` for tests."""
    signature: bytes = layout.SIGNATURE

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}; expected {low} to {high}")
        for name, choices in _CHOICES:
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {choices}")
        if self.max_write_size < WRITE_BLOCKS_MIN * self.disk_block_size:
            raise ValueError(f"max_write_size is below {WRITE_BLOCKS_MIN} disk blocks")
        if self.log_before_commit and self.log_after_commit:
            raise ValueError("log_before_commit and log_after_commit exclude each other")
        if self.zap_log_files and not self.zap_log_files_confirmed:
            raise ValueError("zap_log_files throws data away: confirm it")
        if len(self.signature) != layout.SIGNATURE_SIZE:
            raise ValueError(f"a signature has {layout.SIGNATURE_SIZE} bytes")

    @property
    def usual_names(self) -> str | None:
        """The pattern of the file names; None if they are not the default ones."""
        usual = (self.file_base_name, self.file_extension) == (DEFAULT_BASE, DEFAULT_EXTENSION)
        return f"{DEFAULT_BASE}-*.{DEFAULT_EXTENSION}" if usual else None

    @property
    def file_size(self) -> int:
        """Bytes at which the log rolls over."""
        return self.file_size_mb * MEBIBYTE

    @property
    def entries_size_max(self) -> int:
        """Bytes of entries that fill a block of `max_write_size`."""
        blocks = self.max_write_size // self.disk_block_size
        return blocks * self.disk_block_size - layout.BOTH_HEADERS - layout.PROLOGUE_SIZE

    @property
    def entry_size_max(self) -> int:
        """Bytes of the largest entry; it gets a block of its own."""
        data = min(self.max_transaction_size - layout.BOTH_HEADERS, layout.DATA_SIZE_MAX)
        return data - layout.PROLOGUE_SIZE

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Return settings from values by their documented names.

        Raises:
            ValueError: a name is unknown, or a value is outside its range.
        """
        kinds = {field.name: field.type for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in properties.items():
            key = _snake_case(name.removeprefix(_PREFIX))
            if key not in kinds:
                raise ValueError(f"no such property: {name}")
            try:
                values[key] = _value(str(kinds[key]), text)
            except ValueError as error:
                raise ValueError(f"{name} is {text!r}: {error}") from error
        return cls(**values)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Return settings from a Java properties file.

        Names that do not begin with ``ct.logger.`` belong to other parts of an application and
        are ignored.

        Raises:
            ValueError: a name with this prefix is unknown, or a value is outside its range.
            OSError: the file cannot be read.
        """
        try:
            found = parse_properties(Path(path).read_bytes())
            ours = {name: text for name, text in found.items() if name.startswith(_PREFIX)}
            return cls.from_properties(ours)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from error


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("thread_count", 1, 64),
    ("file_size_mb", 1, FILE_SIZE_MB_MAX),
    ("disk_space_low_warning_count", 0, 1 << 20),
    ("disk_space_low_busy_count", 0, 1 << 20),
    ("write_delay_micros", 0, 10_000_000),
    ("persisted_flush_millis", 1, 3_600_000),
    ("carry_forward_files", 1, 1 << 30),
    ("carry_forward_max", 0, 1 << 30),
    ("max_transaction_size", 1024, layout.DATA_SIZE_MAX),
    ("dispose_on_close_seconds", 0, 86_400),
)
_CHOICES: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("disk_block_size", layout.BLOCK_SIZES),
    ("file_date_pattern", (FILE_DATE_PATTERN,)),
    ("on_damage", ("stop", "report")),
    ("on_incomplete", ("fail", "replay")),
    ("sync", ("data", "full", "none")),
)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _value(kind: str, text: str) -> object:
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise ValueError("neither true nor false")
        return text.lower() == "true"
    if kind == "int":
        return int(text.partition("/")[0])  # a value for production and one for debugging
    if kind == "float":
        return float(text)
    return bytes.fromhex(text) if kind == "bytes" else text
