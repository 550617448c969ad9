"""What speaks SQL: ``tallystick sql PATH "select ..."`` asks the tables of all logs below a path.

``undo`` and ``redo`` print the statements that take a transaction back, or bring it in.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from collections.abc import Callable
from typing import Any

import click

from tallystick.cli.output import (
    WIDTH,
    Printer,
    as_json,
    end_listing,
    output_option,
    output_target,
    path_argument,
    print_json_lines,
    print_script,
    read_options,
    reading_options,
    say,
)
from tallystick.errors import TallystickError
from tallystick.investigate import undo as undoing
from tallystick.investigate.export import (
    FORMATS,
    json_lines,
    refuse_input,
    write_batches,
    write_whole,
)
from tallystick.investigate.undo import Reversal
from tallystick.printable import counted
from tallystick.records import Finding

ROWS = 40
"""Rows of an answer that a terminal is shown: the first and the last; --to gives all."""
_PROMPT, _MORE = "sql> ", "...> "


@click.command()
@path_argument
@click.argument("query", required=False)
@click.option("--to", "form", type=click.Choice(FORMATS), help="Form of the output, not a table.")
@output_option
@as_json
@reading_options
def command(
    path: str,
    query: str | None,
    form: str | None,
    output: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Ask the logs below PATH in SQL: DuckDB, with their tables as views.

    `SHOW ALL TABLES` lists them: logs, files, records, transactions, changes, findings,
    collections, global_transactions, profile, and the collections of each system, such as
    derby."APP.ACCOUNTS". Without QUERY, statements are read from standard input; on a terminal
    with a prompt. Nothing is written but --output. --json is --to jsonl.
    """
    from tallystick.investigate.sql import Error, sql, statements

    form = form or ("jsonl" if as_json else None)
    if output is not None and form is None:
        raise click.UsageError("--output needs a form: --to jsonl, csv, parquet or arrow")
    if output is not None:
        refuse_input(output, path)
    with sql(path, options=read_options(**options)) as connection:
        if query is None and sys.stdin.isatty():
            _prompt(connection)
            return
        try:
            asked = statements(connection, sys.stdin.read() if query is None else query)
            if form is not None and len(asked) != 1:
                raise click.UsageError("--to and --json take one statement")
            for one in asked:
                _answer(connection, one, form, output)
        except Error as error:
            raise TallystickError(_sentence(error)) from error


def _answer(connection: Any, statement: str, form: str | None, output: str | None) -> None:
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


def _show(found: Any) -> None:
    """Print a table that is as wide as the terminal."""
    text, width = io.StringIO(), WIDTH
    if sys.stdout.isatty():
        width = shutil.get_terminal_size((WIDTH, 24)).columns
    with contextlib.redirect_stdout(text):
        found.show(max_width=width, max_rows=ROWS)
    out = Printer()
    for line in text.getvalue().rstrip().split("\n"):
        out.line(line)


def _prompt(connection: Any) -> None:
    """Answer statements that are typed, each ended by a semicolon, until the input ends."""
    from tallystick.investigate.sql import Error, statements

    _complete(connection)
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
        if not typed.rstrip().endswith(";"):
            typed = "" if typed.isspace() else typed
            continue
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
    """Return what an error says, without the traceback that DuckDB adds to one of ours."""
    return str(error).partition(" Detail: Python exception")[0].strip()


def _reversal_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.pass_context, reading_options, output_option, as_json,
        click.option(
            "--transaction",
            required=True,
            metavar="ID",
            help="Its number in its log, or the beginning of its global id.",
        ),
        path_argument,
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@_reversal_options
def undo_command(ctx: click.Context, /, **options: Any) -> None:
    """Print statements that take a committed transaction back.

    SQL for H2 and Derby, operations on records for journals, decisions for coordinators; with a
    warning for each later change of the same row. Nothing is run. The exit code is 1 if the old
    row of one cannot be told.
    """
    _print_reversals(ctx, undoing.undo, **options)


@click.command()
@_reversal_options
def redo_command(ctx: click.Context, /, **options: Any) -> None:
    """Print statements that bring in a lost or undone transaction again.

    As undo does, in the order of the transaction. Nothing is run.
    """
    _print_reversals(ctx, undoing.redo, **options)


def _print_reversals(
    ctx: click.Context,
    make: Callable[..., list[Reversal]],
    path: str,
    transaction: str,
    as_json: bool,
    output: str | None,
    **given: Any,
) -> None:
    options, problems = read_options(**given), list[Finding]()
    if output is not None:
        refuse_input(output, path, options)
    found = make(path, transaction, options=options, problems=problems)
    dicts = [one.to_dict() for one in found]
    text = "\n".join(one.text for one in found)
    if output is not None:
        write_whole(
            output, lambda out: json_lines(out, dicts) if as_json else out.write(text.encode())
        )
        acts = sum(len(one.acts) for one in found)
        say(f"{counted(acts, 'change')} in {output}; nothing was run", err=True)
    elif as_json:
        print_json_lines(dicts)
    else:
        print_script(text)
    end_listing(ctx, problems, damaged=any(one.exit_code for one in found))
