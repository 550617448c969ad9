"""``tallystick sql PATH "select ..."`` asks the tables of all logs below some paths."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import click

from tallystick.cli.addresses import GivenPath
from tallystick.cli.answers import end_listing, lacks_logs
from tallystick.cli.interrupts import always_interrupted
from tallystick.cli.options import (
    Command,
    as_json,
    form_of,
    output_option,
    output_target,
    read_options,
    reading_options,
)
from tallystick.cli.output import WIDTH, Printer, Unbroken, say, say_finding
from tallystick.errors import TallystickError
from tallystick.investigate.export import FORMATS, refuse_input, write_batches
from tallystick.printable import counted
from tallystick.records import Finding

ROWS = 40
"""Rows of an answer that a terminal is shown: the first and the last; a pipe gets all."""
_TABLE_ROWS = 5000
"""Rows that a table in a pipe has: DuckDB draws no more than ten thousand."""
_NO_LIMIT = (1 << 31) - 1
_OF_TABLES = ["database", "schema", "name", "column_names", "column_types", "temporary"]
"""Columns of `SHOW ALL TABLES`, of which a terminal has no room for the names."""
_QUERY = re.compile(r"(?!\w+://)(/\*|[^./~]).*[\s(;]", re.DOTALL)
"""How a statement begins; what is none, and not there, is a path that was mistyped."""
_EMPTY = "the query is empty: give a statement, or none to be asked for them"
_PROMPT, _MORE = "sql> ", "...> "
_ENDS = ("quit", "exit", "\\q", ".quit", ".exit")
"""What ends the prompts of other databases."""


class _Command(Command):
    """A command of which an argument that begins as an option does may be a query."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take a text of several lines that begins with a comment as no option."""
        names = {name for one in self.get_params(ctx) for name in one.opts}
        # A space before it changes nothing in SQL.
        return super().parse_args(
            ctx, [f" {one}" if _is_commented(one, names) else one for one in args]
        )


def _is_commented(text: str, options: set[str]) -> bool:
    return text.startswith("--") and "\n" in text and text.partition("=")[0] not in options


@click.command(cls=_Command)
@click.argument("paths", nargs=-1, required=True, type=GivenPath(), metavar="PATHS... [QUERY]")
@click.option("--to", "form", type=click.Choice(FORMATS), help="Form of the output, not a table.")
@output_option
@as_json
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    form: str | None,
    output: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Ask the logs below PATHS in SQL: DuckDB, with their tables as views.

    `SHOW ALL TABLES` lists them: logs, files, records, transactions, changes, findings,
    collections, global_transactions, profile, and the collections of each system, such as
    derby."APP.ACCOUNTS". Without QUERY, statements are read from standard input; on a terminal
    with a prompt. Nothing is written but --output. --json is --to jsonl.
    """
    from tallystick.investigate.sql import sql

    problems: list[Finding] = []
    paths, query = _apart(paths)
    form = form_of(form, as_json=as_json)
    if output is not None and form is None:
        raise click.UsageError("--output needs a form: --to jsonl, csv, parquet or arrow")
    if output is not None:
        refuse_input(output, paths)
    with sql(paths, options=read_options(**options), problems=problems) as connection:
        from tallystick.investigate.sql_views import Error, statements

        if lacks_logs(problems):
            end_listing(ctx, problems)
        if query is None and sys.stdin.isatty():
            _prompt(connection, problems)
            return
        try:
            asked = statements(connection, _text_of(query))
            if query is not None and not asked:
                raise click.UsageError(_EMPTY)
            if form is not None and len(asked) != 1:
                raise click.UsageError("--to and --json take one statement")
            for one in asked:
                _answer(connection, one, form, output)
        except Error as error:
            raise TallystickError(_sentence(error)) from error
    end_listing(ctx, problems)


def _text_of(query: str | None) -> str:
    """Return a query, or what standard input has, if it is one."""
    try:
        text = sys.stdin.read() if query is None else query
        text.encode()
    except UnicodeError as error:
        raise click.UsageError("the query is not UTF-8") from error
    return text


def _apart(given: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Return the paths, and the query that comes last, if there is one."""
    if not given[-1].strip():
        raise click.UsageError(_EMPTY if len(given) > 1 else "the path is empty")
    queries = [one for one in given if _QUERY.match(one) and not os.path.lexists(one)]
    if not queries:
        return given, None
    if len(given) == 1 or queries != [given[-1]]:
        raise click.UsageError(f"no path is {queries[0]!r}; a query comes last, after all paths")
    return given[:-1], given[-1]


def _answer(connection: Any, statement: str, form: str | None, output: str | None) -> None:
    with always_interrupted(connection.interrupt):
        _print_answer(connection, statement, form, output)


def _print_answer(connection: Any, statement: str, form: str | None, output: str | None) -> None:
    found = connection.sql(statement)
    if form is None:
        if found is not None:
            _show(found)
        return
    if found is None:
        raise click.UsageError("the statement has no rows")
    count = write_batches(found.to_arrow_reader(), form, output_target(form, output))
    if output is not None:
        say(f"{counted(count, 'row')} in {output}", err=True)


_LINES = "\u2500\u2502\u250c\u2510\u2514\u2518\u251c\u2524\u252c\u2534\u253c\u00b7\u2026"
"""What a table is drawn with; encodings of one byte have none of its lines."""
_PLAIN_LINES = str.maketrans(_LINES, "-|+++++++++..")


def _show(found: Any) -> None:
    """Print a table: at a terminal as wide as that is, elsewhere with all that it has."""
    out = Printer()
    for text in _tables(found):
        table = text.rstrip()
        try:
            _LINES.encode(sys.stdout.encoding)
        except UnicodeEncodeError:
            table = table.translate(_PLAIN_LINES)
        for line in table.split("\n"):
            out.line(Unbroken(line))


def _tables(found: Any) -> Iterator[str]:
    """Yield an answer as DuckDB draws it: whole in as many tables as it needs, at a terminal one.

    That has few rows, and of the list of tables the columns there is room for.
    """
    if sys.stdout.isatty():
        if found.columns == _OF_TABLES:
            found = found.project("schema, name, column_names")
        yield _drawn(found, shutil.get_terminal_size((WIDTH, 24)).columns, ROWS)
        return
    held = found.materialize()
    for begin in range(0, max(len(held), 1), _TABLE_ROWS):
        yield _drawn(held.limit(_TABLE_ROWS, begin), _NO_LIMIT, _NO_LIMIT, max_col_width=_NO_LIMIT)


def _drawn(found: Any, width: int, rows: int, **more: int) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        found.show(max_width=width, max_rows=rows, **more)
    return text.getvalue()


def _prompt(connection: Any, problems: list[Finding]) -> None:
    """Answer statements that are typed, each ended by a semicolon, until the input ends.

    What cannot be read is said once.
    """
    from tallystick.investigate.sql_views import Error, statements

    _complete(connection)
    said = 0
    say("Statements end with a semicolon; SHOW ALL TABLES; lists the views; Ctrl-D ends.", err=True)
    typed = ""
    while True:
        try:
            typed += input(_MORE if typed else _PROMPT) + "\n"
        except EOFError:
            return
        except KeyboardInterrupt:
            typed = ""
            say("", err=True)
            continue
        if typed.strip().rstrip(";").casefold() in _ENDS:
            return
        if not typed.rstrip().endswith(";"):
            typed = "" if typed.isspace() else typed
            continue
        for problem in problems[said:]:
            say_finding(problem)
        said = len(problems)
        try:
            for one in statements(connection, typed):
                _answer(connection, one, None, None)
        except Error as error:
            say(_sentence(error), err=True)
        except KeyboardInterrupt:
            say("interrupted", err=True)
        typed = ""


def _complete(connection: Any) -> None:
    """Have the terminal complete names of views and columns, and keep lines of this session."""
    try:
        import readline
    except ImportError:  # as Python is built without it
        return
    found = connection.execute(
        "SELECT DISTINCT unnest([table_name, column_name]) AS name "
        "FROM information_schema.columns ORDER BY name"
    ).fetchall()
    names = [name for (name,) in found]

    def complete(begun: str, number: int) -> str | None:
        fitting = [one for one in names if one.lower().startswith(begun.lower())]
        return fitting[number] if number < len(fitting) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")


def _sentence(error: Exception) -> str:
    """Return what an error says, in a line, without the traceback that DuckDB adds to ours."""
    text = str(error).partition(" Detail: Python exception")[0]
    return " ".join(part for line in text.splitlines() if (part := line.strip(" \t^")))
