"""The options of the data source, checked once and passed on as one value.

In: the option strings of Spark. Out: `SourceOptions`. Names are compared without regard to
case, as Spark does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.errors import TallystickError
from tallystick.reading.tables import TABLES
from tallystick.storage.source import is_remote
from tallystick.systems.protocol import ReadOptions

SPLIT_BYTES = 128 << 20
"""Work of one task: small logs are put together, large files divided, up to about this."""

MODES = ("permissive", "failfast")
"""What an unreadable log does: become a finding, or fail the job."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much one step of a stream may take; None is without limit.

    A step takes at least one record.
    """

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None


class OptionError(TallystickError, ValueError):
    """An option of the data source that cannot be used."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Which table of which logs, and how to read them."""

    paths: tuple[str, ...]
    table: str = "records"
    split_bytes: int = SPLIT_BYTES
    mode: str = "permissive"
    salvage: bool = False
    search: bool = True
    """False leaves out the findings of the search for logs."""
    limit: Limit = Limit()
    """What one step of a stream may take."""
    hold_folder: str | None = None
    """Where a stream notes for disposers what it has read, for `KeepForReader`."""
    reading: ReadOptions = ReadOptions()  # noqa: RUF009 - frozen
    columns: tuple[str, ...] = ()
    """Columns that are wanted, in their order; none: all of the table."""


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Return the options as one checked value. Raises `OptionError` that names option and value."""
    given = {name.lower(): value for name, value in options.items()}
    table = _one_of(given, "table", tuple(TABLES), "records")
    return SourceOptions(
        _paths(given),
        table,
        _positive(given, "splitbytes", SPLIT_BYTES),
        _one_of(given, "mode", MODES, "permissive"),
        _one_of(given, "salvage", ("true", "false"), "false") == "true",
        _one_of(given, "search", ("true", "false"), "true") == "true",
        Limit(
            _optional(given, "maxrowspertrigger"),
            _optional(given, "maxbytespertrigger"),
            _optional(given, "maxfilespertrigger"),
        ),
        given.get("holdfolder"),
        ReadOptions(
            timezone=given.get("timezone", "UTC"),
            boot_password=given.get("bootpassword"),
            encryption_key=_key(given.get("encryptionkey")),
        ),
        _columns(given, table),
    )


def local_path(options: Mapping[str, str]) -> str:
    """Return the folder that a sink writes to.

    Raises `OptionError` where it is none on this machine.
    """
    (path,) = _paths({name.lower(): value for name, value in options.items()})[:1]
    if is_remote(path):
        raise OptionError("logs are written to local folders only", found=path)
    return path.rstrip("/")


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    if "paths" in given:
        try:
            paths = json.loads(given["paths"])
        except ValueError as error:
            raise OptionError("option paths is no JSON", found=given["paths"]) from error
        return tuple(map(_local, paths))
    if "path" not in given:
        raise OptionError("no path was given", advice="Use .load(PATH) or option('path', PATH)")
    return (_local(given["path"]),)


def _columns(given: Mapping[str, str], table: str) -> tuple[str, ...]:
    names = tuple(filter(None, map(str.strip, given.get("columns", "").split(","))))
    for name in names:
        if name not in TABLES[table].names:
            expected = f"columns of {table}: {', '.join(TABLES[table].names)}"
            raise OptionError("option columns", expected=expected, found=name)
    return names


def _local(path: str) -> str:
    """Without the scheme that Spark may add to a local path."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path


def _one_of(given: Mapping[str, str], name: str, values: tuple[str, ...], default: str) -> str:
    value = given.get(name, default).lower()
    if value not in values:
        raise OptionError(f"option {name}", expected=f"one of {', '.join(values)}", found=value)
    return value


def _positive(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(f"option {name}", expected="a number above 0", found=text)
    return int(text)


def _optional(given: Mapping[str, str], name: str) -> int | None:
    return _positive(given, name, 1) if name in given else None


def _key(text: str | None) -> bytes | None:
    try:
        return None if text is None else bytes.fromhex(text)
    except ValueError as error:
        raise OptionError("option encryptionKey", expected="hexadecimal digits") from error
