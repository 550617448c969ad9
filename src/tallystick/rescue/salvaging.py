"""What can be read of a log, or of the database around it, as something that loads.

In: a path and a form. Out: a script in SQL, a folder that Derby imports, a folder of Parquet files,
or a new log of the same system; and what was brought, and what could not be. The logs are only
read. Memory: all rows.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from tallystick.arguments import a_path
from tallystick.convert.command import convert
from tallystick.errors import (
    LogPoisonedError,
    LogUnreadableError,
    LogWriteError,
    TallystickError,
    UnsupportedFormatError,
)
from tallystick.investigate.export import write_whole
from tallystick.investigate.statements import quoted
from tallystick.printable import counted, counted_kind, first_of
from tallystick.reading.discovery import path_of, with_password
from tallystick.reading.names import path_alone
from tallystick.reading.results import is_severe
from tallystick.reading.settled import damage_of
from tallystick.reading.survey import NO_LOG, Survey, survey
from tallystick.records import Fate, Kind, Row
from tallystick.rescue.mending import require_free
from tallystick.roles import Role
from tallystick.storage.local import made_whole, naming, write_anew
from tallystick.systems.known import NATIVE
from tallystick.systems.protocol import (
    Collection,
    Column,
    Dialect,
    Importable,
    KnowsFates,
    KnowsRowsBefore,
    LogReading,
    LogSource,
    ReadOptions,
)
from tallystick.systems.registry import system
from tallystick.systems.surroundings import ALONE

FORMS = ("h2-script", "derby-import", "parquet", "journal", "artemis-xml")
_BROUGHT = (Fate.COMMITTED, Fate.LOST)
_NAMED_MAX = 4
"""Logs that a message names."""
_OWN_SCHEMAS = ("INFORMATION_SCHEMA",)
_GIVEN_SCHEMAS = {"h2-script": "PUBLIC", "derby-import": "APP"}
"""Schemas that an engine fills by itself, and the one that is there in a new database."""
_NO_TEXT = ("ARRAY", "ROW", "OTHER", "OBJECT", "JAVA_OBJECT", "RESULT_SET")
"""Types of which a text is not a value that can be loaded."""
_KINDS = {
    Role.DECISION_LOG: "open decisions",
    Role.RECORD_JOURNAL: "records",
    Role.PERSIST_LOG: "pending entries",
}
"""What a log of a role holds first of all."""
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(slots=True)
class Salvage:
    """What was brought, by table or kind, and what could not be, by reason.

    ``notes`` say what else there is to know, ``next`` how to go on. Where nothing could be brought,
    nothing was written, and ``target`` is empty.
    """

    path: str
    target: str
    form: str
    brought: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    next: str = ""

    @property
    def exit_code(self) -> int:
        """0 if everything was brought, 1 if something is left."""
        return int(self.left.total() > 0)

    def __str__(self) -> str:
        if not self.target:
            left = ", ".join(counted_kind(count, what) for what, count in self.left.items())
            return f"{self.path}: nothing could be brought, and nothing was written: {left}"
        left = f"; {self.left.total():,} could not be brought" if self.left else ""
        return f"{self.path}: {counted(self.brought.total(), 'row')} in {self.target}{left}"

    def to_dict(self) -> dict[str, Any]:
        """Return what ``tallystick salvage --json`` prints."""
        return {
            "path": self.path, "target": self.target or None, "form": self.form,
            "brought": dict(self.brought), "left": dict(self.left), "notes": self.notes,
            "next": self.next,
        }  # fmt: skip


@dataclass(slots=True)
class _Table:
    collection: Collection
    source: LogSource
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """The system of its log."""
        return self.source.system

    @property
    def name(self) -> tuple[str, str]:
        """Schema and name."""
        schema, dot, name = self.collection.name.partition(".")
        return (schema, name) if dot else ("", schema)

    @property
    def quoted(self) -> str:
        return ".".join(quoted(one) for one in self.name if one)


def salvage(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    form: str,
    *,
    options: ReadOptions | None = None,
) -> Salvage:
    """Write what can be read of the logs below ``path`` in one of `FORMS`.

    ``h2-script`` is a script that H2 runs, ``derby-import`` a folder with a file for each table and
    the calls that import them; columns of tables of another engine get types in which their values
    stand, and the notes say which. ``parquet`` is a folder with a
    file for each table; ``journal`` a new log of the same system with all that can be believed;
    ``artemis-xml`` the messages that wait, as ``artemis data imp`` sends them to a broker.
    The target appears when it is whole.

    Raises:
        ValueError: there is no such form.
        LogUnreadableError: there is no log, or none with tables.
        LogWriteError: the target exists, lies among the logs, or cannot be written.
    """
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r}; one of {', '.join(FORMS)}")
    options = with_password([os.fspath(path)], options)
    origin, place = Path(path_of(a_path(path))), Path(a_path(target))
    require_free(place.absolute(), "target")
    found = survey(origin, options=options).refuse_unknown_settings()
    for one in found.problems:
        if one.code == NO_LOG:
            raise LogUnreadableError(one.message, file=one.file, advice=one.advice)
    folders = [origin, *(Path(one.path) for one in found.logs if origin.is_dir())]
    if not {one.resolve() for one in folders}.isdisjoint(place.resolve().parents):
        raise LogWriteError("the target would lie among the logs", file=str(target))
    report = Salvage(str(origin), str(place), form)
    if form == "journal":
        return _journal(found, place, report)
    if form == "artemis-xml":
        return _import(found, place, report)
    tables = _tables(found, report)
    if not tables:
        raise _without_tables(found, form)
    if mend := found.repair_command():
        report.notes.append(f"damage here can be mended before: {mend}")
    report.brought.update({one.collection.name: len(one.rows) for one in tables})
    if form != "parquet":
        _fit(tables, report)
    if form == "h2-script":
        write_whole(place, lambda out: _script(out, tables, report))
        report.next = f"In H2: RUNSCRIPT FROM {_text(str(place))} CHARSET 'UTF-8';"
        return report
    fill = _parquet_folder if form == "parquet" else _import_folder
    with naming(place.absolute()), made_whole(place.absolute()) as folder:
        fill(folder, tables, report)
    report.next = "Each table is a file, with its columns in their types."
    if form == "derby-import":
        report.next = "In ij of Derby, started in this folder: run 'schema.sql'; run 'import.sql';"
    return report


def _journal(found: Survey, place: Path, report: Salvage) -> Salvage:
    name = found.logs[0].system
    try:
        made = convert(found.path, place, name, force=True, options=found.options,
                       key_to=found.options.encryption_key)  # fmt: skip
    except (LogWriteError, LogPoisonedError) as error:
        if not isinstance(error.__cause__, OSError):
            raise
        advice = "Nothing was written, and the log is unharmed: salvage it to another place"
        reason = error.__cause__.strerror or error.__cause__
        message = f"the new log could not be written: {reason}"
        raise type(error)(message, file=str(place), advice=advice) from error
    report.brought.update(made.carried)
    report.left.update(made.left)
    report.notes += made.notes
    report.notes += (
        f"{counted_kind(count, what)} {'is' if count == 1 else 'are'} over"
        for what, count in made.over.items()
    )
    if not made.carried and made.left:
        shutil.rmtree(place)
        report.target = ""
        return report
    if not made.carried:
        report.brought[_KINDS[Role(made.role)]] = 0
    elif name == NATIVE:
        report.notes.append("times and offsets of records are those of the new log")
    report.next = made.next
    return report


def _import(found: Survey, place: Path, report: Salvage) -> Salvage:
    every = [one for one in found.readings() if isinstance(one, Importable) and one.holds_messages]
    if len(every) != 1:
        what = "two journals of messages are" if every else "no journal of messages of Artemis is"
        advice = "Name one" if every else "tallystick salvage --help says which form is for which"
        raise LogUnreadableError(f"{what} here", file=found.path, advice=advice)

    def write(out: IO[bytes]) -> int:
        report.brought, report.left, note = every[0].write_import(out)
        report.notes.append(note)
        return report.brought.total()

    write_whole(place, write)
    _leave_damaged(found, every[0], report)
    if report.left and not report.brought.total():
        place.unlink()
        report.target = ""
        return report
    report.next = f"At a running broker: artemis data imp --input {shlex.quote(report.target)}"
    return report


# -- tables ------------------------------------------------------------------------------------


def _tables(found: Survey, report: Salvage) -> list[_Table]:
    """Return the tables of all logs as of their ends, and note what is not in them."""
    tables: list[_Table] = []
    for reading in found.readings():
        if _has_tables(reading, report.form) and isinstance(reading, KnowsFates):
            tables += _tables_of(reading, report)
            _leave_damaged(found, reading, report)
        else:
            report.left[f"logs of {reading.source.system}, without tables"] += 1
    report.left.update(
        f"{one.code} in {one.file or one.log}" for one in found.problems if one.severity != "info"
    )
    logs = defaultdict[str, list[str]](list)
    for one in tables:
        logs[one.collection.name].append(path_alone(one.source))
    if twice := next((name for name, places in logs.items() if len(places) > 1), None):
        places = logs[twice]
        named = first_of(places, _NAMED_MAX)
        message = f"{counted(len(places), 'log')} have a table {twice}: {named}"
        raise LogUnreadableError(message, file=found.path, advice="Name one log")
    return tables


def _leave_damaged(found: Survey, reading: LogReading, report: Salvage) -> None:
    """Note the damage after which what a log brings may not be all."""
    for one in damage_of(reading, found.known, found.options):
        report.left[f"places of damage, after which changes may be missing: {one.message}"] += 1


def _has_tables(reading: LogReading, form: str) -> bool:
    """Return whether a log has tables; those of a script are of a database, and not messages."""
    is_database = form == "parquet" or system(reading.source.system).dialect is not None
    return is_database and isinstance(reading, KnowsRowsBefore)


def _without_tables(found: Survey, form: str) -> LogUnreadableError:
    """Return the error that says why there is no table, and what is to be typed instead."""
    readings = list(found.readings())
    findings = [one for reading in readings for one in reading.findings()]
    damage = next(filter(is_severe, [*findings, *found.problems]), None)
    advice = "tallystick rows --to parquet writes the changes of its log"
    if mend := found.repair_command():
        advice = f"Mend it in a copy first: {mend}"
    elif damage is not None:
        advice = "Nothing here proves a mend: use a backup"
    if not any(_has_tables(one, form) for one in readings) and readings:
        advice = "Take --as journal, or tallystick rows --to parquet"
        return LogUnreadableError("no log here has tables", file=found.path, advice=advice)
    if damage is None:
        return LogUnreadableError("no table is in it", file=found.path, advice=advice)
    message = f"no table can be read: {damage.message}"
    return LogUnreadableError(message, file=damage.file or found.path, advice=advice)


def _tables_of(reading: Any, report: Salvage) -> list[_Table]:
    every = [one for one in reading.collections() if one.name.partition(".")[0] not in _OWN_SCHEMAS]
    tables = {one.name: _Table(one, reading.source) for one in every}
    for name, table in tables.items():
        try:
            for key, values in reading.rows_before(name):
                table.rows[key] = dict(values)
        except TallystickError as error:
            report.left[f"rows of {name} after damage: {error.message}"] += 1
    around = reading.verdict().surroundings
    if around is not None and around.kind == ALONE:
        report.left["databases, of which only the log is here: rows from before are missing"] += 1
    stored = {other: one.name for one in every for other in (one.name, *one.stored)}
    for row in reading.fated_changes():
        table_name = stored.get(row.change.collection)
        if table_name is None:
            continue
        if row.fate in _BROUGHT:
            _apply(tables[table_name], row, report)
        elif row.fate is not Fate.UNDONE:
            report.left[f"changes {row.fate.words.lower()}"] += 1
    return list(tables.values())


def _apply(table: _Table, row: Row, report: Salvage) -> None:
    change, rows = row.change, table.rows
    values = dict(change.values or {})
    match change.kind:
        case Kind.ADD:
            rows[change.key] = values
        case Kind.UPDATE if change.key in rows:
            rows[change.key] |= values
        case Kind.UPDATE:
            report.left[f"updates of rows of {table.collection.name} that are not known"] += 1
        case Kind.DELETE:
            rows.pop(change.key, None)
        case Kind.TRUNCATE:
            rows.clear()
        case _:
            report.left[f"changes of the kind {change.kind}"] += 1


# -- SQL ---------------------------------------------------------------------------------------


def _fit(tables: Iterable[_Table], report: Salvage) -> None:
    """Give the columns of tables of another engine types of the one that loads them.

    A value that stands in none of its types is left.
    """
    target, made = report.form.partition("-")[0], dict[str, None]()
    for table in tables:
        if table.origin == target:
            continue
        columns = [
            _fitted(table, one, _dialect(target), report) for one in table.collection.columns
        ]
        for old, new in zip(table.collection.columns, columns, strict=True):
            if old.declared != new.declared:
                made[f"{old.declared or 'an unknown type'} is made {new.declared}"] = None
        table.collection = replace(table.collection, columns=tuple(columns))
    report.notes += made


def _fitted(table: _Table, column: Column, dialect: Dialect, report: Salvage) -> Column:
    """Return a column as another engine has it; what does not fit into it is gone from the rows."""
    origin, sizes = _dialect(table.origin), [0]
    for row in table.rows.values():
        value = row[column.name] = _value(row, column, report)
        if value is None:
            continue
        try:
            origin.literal(column, value)  # or it is a text that stands for no value
            is_left = not dialect.holds(column, value)
        except UnsupportedFormatError:
            is_left = True
        if is_left:
            _leave(column, report)
            row[column.name] = None
        else:
            sizes.append(len(str(value).encode("utf-16-le")) // 2)
    longest = max(sizes) // (2 if column.kind == "binary" else 1)
    return replace(column, declared=dialect.declared(column, longest))


def _dialect(name: str) -> Dialect:
    found = system(name).dialect
    assert found is not None  # it has a form of its own, or tables of a database
    return found


def _schema(tables: Iterable[_Table], form: str) -> Iterator[str]:
    tables = list(tables)
    for schema in dict.fromkeys(one.name[0] for one in tables):
        if schema and schema != _GIVEN_SCHEMAS[form]:
            yield f"CREATE SCHEMA {quoted(schema)};\n"
    for one in tables:
        columns = ", ".join(f"{quoted(c.name)} {c.declared}" for c in one.collection.columns)
        yield f"CREATE TABLE {one.quoted} ({columns});\n"


def _script(out: IO[bytes], tables: list[_Table], report: Salvage) -> int:
    dialect = _dialect(report.form.partition("-")[0])
    for line in _schema(tables, report.form):
        out.write(line.encode())
    for table in tables:
        for row in table.rows.values():
            values = (_literal(dialect, row, c, report) for c in table.collection.columns)
            line = f"INSERT INTO {table.quoted} VALUES ({', '.join(values)});\n"
            out.write(line.encode("utf-8"))
    return report.brought.total()


def _parquet_folder(folder: Path, tables: list[_Table], report: Salvage) -> None:
    import pyarrow.parquet

    from tallystick.pipeline.typed import table_of

    for number, table in enumerate(tables, 1):
        columns = table.collection.columns
        rows = [
            {one.name: _plain(_value(row, one, report)) for one in columns}
            for row in table.rows.values()
        ]
        made, odd = table_of(rows, [(one.name, one.kind) for one in columns])
        for one in columns:
            for _ in (row for row in odd if one.name in row):
                _leave(one, report)
        with write_anew(folder / _file_name(number, table, "parquet")) as out:
            pyarrow.parquet.write_table(made, out)


def _file_name(number: int, table: _Table, form: str) -> str:
    return f"{number:04}-{_SAFE.sub('_', table.name[1])}.{form}"


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: bytes are hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _import_folder(folder: Path, tables: list[_Table], report: Salvage) -> None:
    calls = []
    for number, table in enumerate(tables, 1):
        schema, name = table.name
        file = _file_name(number, table, "csv")
        with write_anew(folder / file) as out:
            for row in table.rows.values():
                values = (_field(_value(row, c, report)) for c in table.collection.columns)
                out.write((",".join(values) + "\n").encode("utf-8"))
        arguments = ", ".join(map(_text, (schema, name, file, ",", '"', "UTF-8")))
        calls.append(f"CALL SYSCS_UTIL.SYSCS_IMPORT_TABLE({arguments}, 0);\n")
    for file, lines in (("schema.sql", _schema(tables, report.form)), ("import.sql", calls)):
        with write_anew(folder / file) as out:
            out.write("".join(lines).encode())


def _literal(dialect: Dialect, row: Mapping[str, Any], column: Column, report: Salvage) -> str:
    try:
        return dialect.literal(column, _value(row, column, report))
    except UnsupportedFormatError:
        _leave(column, report)
        return "NULL"


def _value(row: Mapping[str, Any], column: Column, report: Salvage) -> Any:
    """Return the value of a column; None, noted, where it cannot be had."""
    value = row.get(column.name)
    odd = isinstance(value, str) and not _is_unicode(value)
    if isinstance(value, Mapping) or odd or (value is not None and _has_no_text(column)):
        _leave(column, report)
        return None
    return value


def _leave(column: Column, report: Salvage) -> None:
    what = f"{column.name} ({column.declared})"
    report.left[f"values of {what} that cannot be had or written"] += 1


def _has_no_text(column: Column) -> bool:
    return column.declared.partition("(")[0].strip().upper() in _NO_TEXT


def _is_unicode(value: str) -> bool:
    return not any("\ud800" <= one <= "\udfff" for one in value)


def _field(value: Any) -> str:
    """Return a value as a field of a file that Derby imports: null is nothing, bytes are hex."""
    if value is None:
        return ""
    text = value.hex() if isinstance(value, bytes) else str(value)
    return '"' + text.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
