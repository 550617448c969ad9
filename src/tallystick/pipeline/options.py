"""The options of the data source, checked once and passed on as one value.

In: the option strings of Spark. Out: `SourceOptions`. Names are compared without regard to
case, as Spark does; a name that is not known is an error, so that a misspelt one is not ignored.
"""

from __future__ import annotations

import glob
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path

import pyarrow as pa

from tallystick.arguments import moment, time_zone
from tallystick.errors import TallystickError, UnsupportedFormatError
from tallystick.pipeline.change_feed import (
    EVERYTHING,
    SOURCE_TABLES,
    Bounds,
    selected_columns,
)
from tallystick.pipeline.typed import typed_schema
from tallystick.reading.discovery import path_of
from tallystick.reading.tables import Condition
from tallystick.records import Finding
from tallystick.storage.source import is_remote
from tallystick.systems.protocol import LogReading, ReadOptions

SPLIT_BYTES = 128 << 20
"""Work of one task: small logs are put together, large files divided, up to about this."""

MODES = ("permissive", "failfast")
"""What an unreadable log does: become a finding, or fail the job."""

BEFORE_IMAGES = ("log", "history")
"""Where the old images of changed rows come from: the changes themselves, or earlier ones, too."""

ON_REWRITE = ("fail", "restart")
"""What a stream does where a log no longer holds what it handed on."""

NAMES = (
    "path",
    "paths",
    "table",
    "columns",
    "timestamps",
    "splitBytes",
    "mode",
    "failOnDataLoss",
    "salvage",
    "search",
    "feed",
    "timezone",
    "bootPassword",
    "encryptionKey",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "maxFilesPerTrigger",
    "holdFolder",
    "onRewrite",
    "collection",
    "beforeImages",
    "baseImages",
    "imagesFolder",
    "startingTimestamp",
    "endingTimestamp",
    "startingVersion",
    "endingVersion",
    "startingOffsets",
)
"""Every option of the data source, as the documentation spells it."""

OF_RUNS = ("splitBytes", "mode", "salvage", "timezone", "bootPassword", "encryptionKey")
"""Those that mean something where all tables are made, and whole."""

_OF_SPARK = frozenset(
    {
        "checkpointlocation",
        "comment",
        "external",
        "is_managed",
        "location",
        "owner",
        "provider",
        "queryname",
    }
)
"""What Spark itself adds: properties of catalog tables, options of streaming queries."""
_TWIN = "option."
"""Prefix of the second copy that a catalog keeps of each option."""

_LONGS = 1 << 63
"""Versions and sizes are signed and of eight bytes, here and in Spark."""
_DIGITS_MAX = 19
"""Of such a number."""

_UNITS = {"k": 10, "m": 20, "g": 30}


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
    """Which table of which logs, and how to read them.

    Secrets are references (``env:NAME``, ``file:PATH``), resolved where a log is opened: this
    value travels to executors and may be written to disk on its way.
    """

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
    timezone: str = "UTC"
    boot_password: str | None = None
    encryption_key: str | None = None
    feed: bool = True
    """False gives ``changes`` as the library has them, without the columns of a change feed."""
    on_rewrite: str = "fail"
    """One of `ON_REWRITE`; ``restart`` reads a rewritten file again, as a new one."""
    columns: tuple[str, ...] = ()
    """Columns that are wanted, in their order; none: all of the table."""
    timestamps: bool = False
    """True if records have a column `TIMESTAMP`."""
    collection: str | None = None
    """The collection whose changes are wanted, in its own columns."""
    typed: tuple[tuple[str, str], ...] = ()
    """Names and kinds of these columns, once the catalogues were asked."""
    key: tuple[str, ...] = ()
    """Those of the primary key, once the catalogues were asked."""
    history: bool = False
    """True if changes have the old images that earlier changes of the log tell."""
    base_images: str | None = None
    """Parquet with the rows before the first change of the logs, or at a commit."""
    images_folder: str | None = None
    """Where a stream keeps the newest image of every row."""
    fail_on_data_loss: bool = True
    """False lets a stream go on without records that are gone or damaged."""
    bounds: Bounds = EVERYTHING
    """Where what is wanted begins and ends."""
    latest: bool = False
    """True if a stream begins with what is written after it began."""
    declared: tuple[str, ...] = ()
    """Names of ``columns`` in a query's schema: as they are, or in other letters of case."""
    coded: tuple[str, ...] = ()
    """Texts of records that stay dictionary-encoded, for a reader that takes them so."""
    condition: Condition | None = None
    """Which records are wanted at least."""

    @property
    def feeds(self) -> bool:
        """True if the table is a change feed."""
        return self.table == "changes" and self.feed

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns that are wanted."""
        if self.typed:
            whole = typed_schema(self.typed)
            return pa.schema([whole.field(name) for name in self.columns or whole.names])
        return selected_columns(
            self.table, self.columns, feeds=self.feeds, timestamps=self.timestamps
        )

    def wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of a batch that are wanted, called as the query calls them."""
        found = batch.select(self.schema.names)
        return found.rename_columns(self.declared) if self.declared else found

    @property
    def reading(self) -> ReadOptions:
        """What a reader has to know. Raises `OptionError` where a secret cannot be had."""
        password = self.boot_password and secret("bootPassword", self.boot_password)
        key = self.encryption_key and secret("encryptionKey", self.encryption_key)
        return ReadOptions(
            timezone=self.timezone,
            boot_password=password,
            encryption_key=_key(key),
            skip_lost=not self.fail_on_data_loss,
        )

    def note_problem(self, problem: Finding) -> None:
        """Take note of a log that cannot be read: here a row of the findings table does."""

    def note_read(self, table: str, reading: LogReading) -> None:
        """Take note that a table of a whole log was read: the findings table has its damage."""


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Return the options as one checked value. Raises `OptionError` that names option and value."""
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    table = _one_of(given, "table", tuple(SOURCE_TABLES), "records")
    return SourceOptions(
        _paths(given),
        table,
        _positive(given, "splitBytes", SPLIT_BYTES),
        _one_of(given, "mode", MODES, "permissive"),
        _one_of(given, "salvage", ("true", "false"), "false") == "true",
        _one_of(given, "search", ("true", "false"), "true") == "true",
        Limit(
            _optional(given, "maxRowsPerTrigger"),
            _optional(given, "maxBytesPerTrigger"),
            _optional(given, "maxFilesPerTrigger"),
        ),
        given.get("holdfolder"),
        _timezone(given),
        _reference(given, "bootPassword"),
        _reference(given, "encryptionKey"),
        _one_of(given, "feed", ("true", "false"), "true") == "true",
        _one_of(given, "onRewrite", ON_REWRITE, "fail"),
        _columns(given, table),
        _timestamps(given, table),
        _collection(given, table),
        (),
        (),
        *_images(given, table),
        fail_on_data_loss=_one_of(given, "failOnDataLoss", ("true", "false"), "true") == "true",
        bounds=_bounds(given, table),
        latest=_one_of(given, "startingOffsets", ("earliest", "latest"), "earliest") == "latest",
    )


def require_kept_images(options: SourceOptions) -> None:
    """Check that a stream can keep old images. Raises `OptionError`."""
    if options.history and options.images_folder is None:
        raise OptionError(
            "a stream with beforeImages=history keeps the newest image of every row",
            expected="the option imagesFolder: a folder on the executors, of this query alone",
        )
    if options.history and options.on_rewrite != "fail":
        raise OptionError("old images cannot be told from a history that was rewritten",
                          expected="onRewrite=fail", found=options.on_rewrite)  # fmt: skip


def secret(name: str, reference: str) -> str:
    """Return the secret that a reference names: ``env:NAME`` or ``file:PATH``.

    Raises:
        OptionError: the reference has another form, or there is nothing under it here. The
            message holds the reference, never a secret.
    """
    kind, _, place = reference.partition(":")
    if kind not in _SECRETS or not place:
        raise OptionError(
            f"option {name} takes a reference, never the secret itself",
            expected="env:NAME or file:PATH",
            advice="Set an environment variable, or write a file, on the driver and on executors",
        )
    found = _SECRETS[kind](place)
    if found is None:
        raise OptionError(f"option {name}: there is no {reference} on this machine")
    return found


def _of_file(path: str) -> str | None:
    try:
        return Path(path).read_text("utf-8").rstrip("\n")
    except OSError:
        return None


_SECRETS: dict[str, Callable[[str], str | None]] = {"env": os.environ.get, "file": _of_file}


def local_path(options: Mapping[str, str]) -> str:
    """Return the folder that a sink writes to.

    Raises `OptionError` where it is none on this machine.
    """
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    if "paths" in given:
        raise OptionError("a frame is written into one folder", found="the option paths")
    if "path" not in given:
        raise OptionError("no path was given", advice="Use .save(PATH) or option('path', PATH)")
    if is_remote(path := _local(given["path"])):
        raise OptionError("logs are written to local folders only", found=path)
    # What is staged has to lie on the disk that a link leads to, and the link to stay.
    return os.path.realpath(path)


def require_of_runs(options: Iterable[str]) -> None:
    """Check that a run has no option of a single table or a stream. Raises `OptionError`."""
    known = {name.lower() for name in NAMES} - {name.lower() for name in OF_RUNS}
    if others := [name for name in options if name.lower() in known]:
        raise OptionError(
            f"the option {others[0]} is for a single table or a stream: a run makes all, and whole",
            expected=f"one of {', '.join(OF_RUNS)}",
        )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in NAMES}
    for name in given:
        if name in known or name in _OF_SPARK or name.startswith(_TWIN):
            continue
        near = [known[one] for one in get_close_matches(name, known, 1)]
        raise OptionError(
            f"there is no option {name}",
            expected=f"one of {', '.join(NAMES)}",
            advice=f"Did you mean {near[0]}?" if near else None,
        )


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    if "paths" in given:
        try:
            paths = json.loads(given["paths"])
        except ValueError as error:
            raise OptionError("option paths is no JSON", found=given["paths"]) from error
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise OptionError("option paths", expected="a list of texts", found=given["paths"])
        if not paths:
            raise OptionError("option paths", expected="at least one path", found=given["paths"])
        return tuple(map(_named, paths))
    if "path" not in given:
        raise OptionError("no path was given", advice="Use .load(PATH) or option('path', PATH)")
    return (_named(given["path"]),)


def _named(path: str) -> str:
    """Return a path or pattern, also of the URL of a database; local ones are absolute."""
    path = _local(path)
    path = path if is_remote(path) else path_of(path)
    return path if is_remote(path) else os.path.abspath(path)  # noqa: PTH100 - or a pattern


def matching(path: str) -> list[str]:
    """Return the paths that a local pattern matches now; what is none stands for itself."""
    return sorted(glob.glob(path)) if _is_pattern(path) else [path]  # noqa: PTH207


def require_matches(paths: Iterable[str]) -> None:
    """Check that each path, and each pattern, stands for something now. Raises `OptionError`."""
    for path in paths:
        if not matching(path):
            raise OptionError("no file or folder matches the path", found=path)


def folder_of(path: str) -> str:
    """Return the folder in which everything lies that a pattern can match, or the path itself."""
    while _is_pattern(path):
        path = os.path.dirname(path)  # noqa: PTH120 - it may hold a pattern
    return path


def _is_pattern(path: str) -> bool:
    """Return whether a path is a pattern: it holds one, and is not the name of anything."""
    return not is_remote(path) and glob.has_magic(path) and not os.path.lexists(path)


def _columns(given: Mapping[str, str], table: str) -> tuple[str, ...]:
    names = tuple(filter(None, map(str.strip, given.get("columns", "").split(","))))
    feeds = _one_of(given, "feed", ("true", "false"), "true") == "true"
    known = selected_columns(table, feeds=feeds, timestamps=_timestamps(given, table)).names
    if "collection" in given:  # whose columns its catalogue tells
        return names
    return columns_named(names, known, table)


def columns_named(names: Iterable[str], known: Sequence[str], table: str) -> tuple[str, ...]:
    """Return the columns of a table that the option names, which may be in other letters of case.

    Raises `OptionError` for a column that the table has not, or that is named twice.
    """
    alike = {name.lower(): name for name in known}
    found = []
    for name in names:
        column = name if name in known else alike.get(name.lower())
        if column is None:
            expected = f"columns of {table}: {', '.join(known)}"
            raise OptionError("option columns", expected=expected, found=name)
        found.append(column)
    require_once(found)
    return tuple(found)


def require_once(names: Sequence[str]) -> None:
    """Check that no column is wanted twice. Raises `OptionError`."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise OptionError("a column is named twice", found=", ".join(twice))


def _bounds(given: Mapping[str, str], table: str) -> Bounds:
    asked = [name for name in _BOUNDS if name.lower() in given]
    if asked and table not in ("records", "changes"):
        raise OptionError(f"option {asked[0]} is for records and changes", found=f"table {table}")
    for one, other in _EXCLUSIVE:
        if one in asked and other in asked and not _is_earliest(given, other):
            raise OptionError(f"the options {one} and {other} exclude each other")
    first, last = _version(given, "startingVersion"), _version(given, "endingVersion")
    since, until = _moment(given, "startingTimestamp"), _moment(given, "endingTimestamp")
    for begin, end, what in ((first, last, "Version"), (since, until, "Timestamp")):
        if begin is not None and end is not None and begin > end:
            raise OptionError(f"starting{what} is after ending{what}")
    return Bounds(first, last, since, until)


_BOUNDS = (
    "startingVersion", "endingVersion", "startingTimestamp", "endingTimestamp", "startingOffsets",
)  # fmt: skip
_EXCLUSIVE = (
    ("startingVersion", "startingTimestamp"),
    ("endingVersion", "endingTimestamp"),
    ("startingVersion", "startingOffsets"),
    ("startingTimestamp", "startingOffsets"),
)


def _is_earliest(given: Mapping[str, str], name: str) -> bool:
    return name == "startingOffsets" and given[name.lower()].lower() == "earliest"


def _version(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    try:
        found = None if text is None else int(text)
        if found is not None and not -_LONGS <= found < _LONGS:
            raise ValueError
        return found
    except ValueError:
        advice = "startingOffsets=latest begins a stream with what is new"
        raise OptionError(
            f"option {name}", expected="a whole number of eight bytes", found=text,
            advice=advice if text == "latest" else None,
        ) from None  # fmt: skip


def _moment(given: Mapping[str, str], name: str) -> int | None:
    """Return a time as microseconds since 1970; one without a zone is in that of the option."""
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        found = moment(text.strip())
        if found.tzinfo is None:
            found = found.replace(tzinfo=time_zone(_timezone(given)))
    except ValueError:
        expected = "a time as in 2026-01-31 or 2026-01-31T12:00:00+01:00"
        raise OptionError(f"option {name}", expected=expected, found=text) from None
    return (found - _EPOCH) // timedelta(microseconds=1)


def _timezone(given: Mapping[str, str]) -> str:
    """Return the name of a zone: with one that nobody knows each log would be unreadable."""
    name = given.get("timezone", "UTC")
    try:
        time_zone(name)
    except UnsupportedFormatError as error:
        raise OptionError(f"option timezone: {error}") from None
    return name


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _timestamps(given: Mapping[str, str], table: str) -> bool:
    wanted = _one_of(given, "timestamps", ("true", "false"), "false") == "true"
    if wanted and table != "records":
        raise OptionError("option timestamps is for records", found=f"table {table}")
    return wanted


def _collection(given: Mapping[str, str], table: str) -> str | None:
    name = given.get("collection")
    if name is not None and (table != "changes" or given.get("feed", "true").lower() != "true"):
        raise OptionError("option collection is for the change feed: table=changes")
    return name


def _images(given: Mapping[str, str], table: str) -> tuple[bool, str | None, str | None]:
    base, folder = given.get("baseimages"), given.get("imagesfolder")
    known = "history" if base or folder or "collection" in given else "log"
    history = _one_of(given, "beforeImages", BEFORE_IMAGES, known) == "history"
    if history and table != "changes":
        raise OptionError("only changes have old images", found=f"table {table}")
    if (base or folder) and not history:
        raise OptionError("baseImages and imagesFolder need the option beforeImages=history")
    return history, None if base is None else _local(base), folder and _local(folder)


def _local(path: str) -> str:
    """Return the path without the scheme that Spark may add to a local one."""
    if not path.strip():  # a variable that was not set, more often than the current folder
        raise OptionError("the path is empty", advice="Write . for the current folder")
    if path.startswith("dbfs:/"):
        return "/dbfs/" + path.removeprefix("dbfs:/").lstrip("/")  # where Databricks mounts it
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path


def _one_of(given: Mapping[str, str], name: str, values: tuple[str, ...], default: str) -> str:
    value = given.get(name.lower(), default).lower()
    if value not in values:
        raise OptionError(f"option {name}", expected=f"one of {', '.join(values)}", found=value)
    return value


def _positive(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower(), str(default)).strip().lower()
    digits = text.removesuffix("b").rstrip("".join(_UNITS)) if "byte" in name.lower() else text
    unit = text.removesuffix("b").removeprefix(digits)
    known = digits.isdecimal() and len(digits) <= _DIGITS_MAX and unit in ("", *_UNITS)
    found = int(digits) << _UNITS.get(unit, 0) if known else 0
    if not 0 < found < _LONGS:
        expected = "a number above 0"
        expected += ", of bytes or as in 128m" if "byte" in name.lower() else ""
        raise OptionError(f"option {name}", expected=expected, found=text)
    return found


def _optional(given: Mapping[str, str], name: str) -> int | None:
    return _positive(given, name, 1) if name.lower() in given else None


def _reference(given: Mapping[str, str], name: str) -> str | None:
    reference = given.get(name.lower())
    if reference is not None:
        found = secret(name, reference)  # so that a mistake shows before tasks start
        if name == "encryptionKey":
            _key(found)
    return reference


def _key(text: str | None) -> bytes | None:
    try:
        return None if text is None else bytes.fromhex(text)
    except ValueError:
        raise OptionError("option encryptionKey", expected="hexadecimal digits") from None
