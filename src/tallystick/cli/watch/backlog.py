"""``tallystick backlog PATH``: what a write-behind log still owes to its targets."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import click

from tallystick.cli.answers import ANSWER_STYLES, print_problems
from tallystick.cli.options import Command, as_json, paths_argument, read_options, reading_options
from tallystick.cli.output import Printer, Unbroken, print_json
from tallystick.errors import NotALogError
from tallystick.reading.results import reads_nothing
from tallystick.reading.settled import settled_judgement
from tallystick.reading.survey import NO_LOG, survey
from tallystick.records import Answer, Clock, Judgement, Severity, State, Transaction
from tallystick.roles import Role
from tallystick.services.write_behind.service_dir import IDENTITY_FILE, holds_no_log
from tallystick.storage.local import LOCAL
from tallystick.systems.protocol import LogReading, LogSource
from tallystick.systems.registry import system

_PER_SECOND = {Clock.WALL_US: 1_000_000, Clock.WALL_MS: 1_000, Clock.WALL_NS: 1_000_000_000}


@click.command(cls=Command)
@paths_argument
@click.option("--numbers", is_flag=True, help="List every pending transaction.")
@as_json
@reading_options
@click.pass_context
def command(
    ctx: click.Context, /, paths: tuple[str, ...], numbers: bool, as_json: bool, **options: Any
) -> None:
    """Count what is pending in the write-behind logs below PATHS, per target; touch none.

    Each log begins with its answer, as in tallystick explain. Exit code 1 if anything is pending,
    or if a log may have lost something that was; archived segments owe nothing, as later ones may
    hold their marks. Exit code 2 if there is no write-behind log.
    """
    found = survey(paths, options=read_options(**options)).refuse_unknown_settings()
    found.logs = [one for one in found.logs if _may_owe(one, found.options.encryption_key)]
    lost = [path for path in paths if holds_no_log(path, LOCAL)]
    if not found.logs and not lost:
        if all((Path(path) / IDENTITY_FILE).is_file() for path in paths):
            found.problems.clear()  # a disposer took every file: nothing is owed
        elif all(one.code == NO_LOG for one in found.problems):
            raise NotALogError(
                "no write-behind log is here",
                file=found.path,
                advice="Name the folder of a write-behind service, or a tree above it",
            )
    backlogs = []
    for reading in found.readings():
        with found.guard(reading.source):
            pending = [one for one in reading.transactions() if one.state is State.PENDING]
            judgement = settled_judgement(reading, found.known, found.options)
            backlogs.append(_backlog(reading, pending, judgement, numbers=numbers))
    if as_json:
        print_json({"logs": backlogs, "problems": [one.to_dict() for one in found.problems]})
    else:
        _print(backlogs)
        for path in lost:
            text = ": its log is missing, or no file there is one: what it owed may be lost."
            Printer().line("CANNOT TELL  ", Unbroken(path), text)
        print_problems(Printer(), found.problems, [])
    calm = all(
        one["answer"] == Answer.SAFE and (one["archive"] or not one["pending"]) for one in backlogs
    )
    if reads_nothing(True, found.problems):  # a disposer may have taken every log
        ctx.exit(2)
    notes = (one.severity is Severity.INFO for one in found.problems)
    ctx.exit(0 if calm and not lost and all(notes) else 1)


def _may_owe(source: LogSource, key: bytes | None) -> bool:
    """Return whether it is a persist log, or one that does not tell what it is used for."""
    of = system(source.system)
    if Role.PERSIST_LOG not in of.roles:
        return False
    return of.role_in(source.path, LOCAL, key) in (None, Role.PERSIST_LOG)


def _is_archive(source: LogSource, judgement: Judgement) -> bool:
    reason = system(source.system).reason_table.get(judgement.reason)
    return reason is not None and reason.archive


def _backlog(
    reading: LogReading, pending: list[Transaction], judgement: Judgement, *, numbers: bool
) -> dict[str, Any]:
    times = [one.first_time for one in pending if one.first_time is not None]
    per_second = _PER_SECOND.get(reading.clock)
    age = time.time() - min(times) / per_second if times and per_second else None
    backlog: dict[str, Any] = {
        "log": reading.source.path,
        "system": reading.source.system,
        **judgement.to_dict(),
        "words": judgement.words,
        "archive": _is_archive(reading.source, judgement),
        "pending": len(pending),
        "bytes": sum(one.bytes for one in pending),
        "oldest_seconds": age,
        "targets": dict(Counter(name for one in pending for name in one.open_participants)),
    }
    if numbers:
        backlog["transactions"] = [
            {
                "number": one.transaction,
                "reference": one.name,
                "targets": list(one.open_participants),
            }
            for one in pending
        ]
    return backlog


def _print(backlogs: list[dict[str, Any]]) -> None:
    out = Printer()
    for one in backlogs:
        age = one["oldest_seconds"]
        oldest = "" if age is None else f", the oldest {age:,.0f} s old"
        answer = (one["words"], ANSWER_STYLES[one["answer"]])
        pending = f"{one['pending']:,} pending, {one['bytes']:,} bytes{oldest}"
        out.line(answer, "  ", Unbroken(one["log"]), f": {pending}")
        if one["archive"]:
            out.line("  An archive: what is pending in it may have been applied, as later segments")
            out.line("  of the log say. Ask for the backlog of the service")
        if one["answer"] != Answer.SAFE:
            out.line(f"  Why: {one['reason']['text']}")
        for name, count in sorted(one["targets"].items()):
            out.line(f"  {name}: {count:,}")
        for entry in one.get("transactions", ()):
            out.line(f"  {entry['number']} {entry['reference'] or ''}: {entry['targets']}")
