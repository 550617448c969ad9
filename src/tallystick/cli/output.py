"""What all commands share: where text goes, how it looks, what an exit code means.

Results go to standard output, everything else to standard error. Colours and progress
appear only on a terminal. Lines are never cut: a path has to be copied whole.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from tallystick.records import Finding, Severity
from tallystick.systems.protocol import ReadOptions

_Command = TypeVar("_Command", bound=Callable[..., Any])

STYLES = {
    Severity.INFO: "dim",
    Severity.WARNING: "yellow",
    Severity.DAMAGE: "bold red",
    Severity.LOSS: "bold red",
}


class _BrokenPipe:
    """The reader of standard output has closed it: no error, and nothing more is printed."""

    def close(self) -> int:
        """Discard what is still buffered; return the exit code."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        return 0


BROKEN_PIPE = _BrokenPipe()


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Return standard output for people: wide enough for every path, colours on a terminal only."""
    plain = not sys.stdout.isatty()
    return _Console(highlight=False, soft_wrap=True, width=200 if plain else None)


def complain(message: str, code: int) -> int:
    """Print a sentence to standard error; return ``code``."""
    click.echo(f"tallystick: {message}", err=True)
    return code


def print_json(value: Any) -> None:
    """Print one JSON value for a program."""
    click.echo(json.dumps(value, indent=2))


def print_json_lines(values: Iterable[Any]) -> None:
    """Print one compact JSON object a line."""
    write = sys.stdout.write
    for value in values:
        write(json.dumps(value, separators=(",", ":")) + "\n")
    sys.stdout.flush()


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Yield a spinner that names what is being read, on a terminal only."""
    shown = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with shown:
        task = shown.add_task(what)
        yield lambda name: shown.update(task, description=f"{what} {name}")


def finding_text(finding: Finding) -> Text:
    """Return a finding in a few lines: what, where, expected and found, what to do."""
    text = Text("  ")
    text.append(f"{finding.severity.value} {finding.code}", STYLES[finding.severity])
    text.append(f": {finding.message}")
    if finding.file is not None and finding.file not in finding.message:
        text.append(f"\n      at {place(finding.file, finding.offset)}", "dim")
    if finding.expected is not None and finding.expected not in finding.message:
        text.append(f"\n      expected {finding.expected}; found {finding.found}", "dim")
    if finding.advice is not None and finding.advice not in finding.message:
        text.append(f"\n      {finding.advice}", "italic")
    return text


def listed(counts: dict[str, int]) -> str:
    """Return counts as "12 valid, 3 torn"; zeros are left out."""
    shown = [f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    return ", ".join(shown) or "none"


def place(file: str | None, offset: int | None) -> str:
    """Return a file and an offset as a person writes them."""
    where = file or "?"
    return where if offset is None else f"{where} offset {offset}"


def print_problems(out: Console, problems: Iterable[Finding], others: list[str]) -> None:
    """Print what could not be read, and what is no log."""
    for problem in problems:
        out.print(finding_text(problem))
    if others:
        shown = ", ".join(other.rpartition("/")[2] for other in others[:6])
        rest = f" and {len(others) - 6} more" if len(others) > 6 else ""
        out.print(f"No log: {shown}{rest}", style="dim")


def reading_options(command: _Command) -> _Command:
    """Add the options for what a reader has to know and the bytes do not hold."""
    for option in (
        click.option("--timezone", default="UTC", help="Zone of H2's DATE and TIME values."),
        click.option("--boot-password", help="Boot password of an encrypted Derby log."),
        click.option("--encryption-key", help="Key of an encrypted log, as hex."),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="NAME=VALUE",
            help="A setting that one system documents; may be repeated.",
        ),
    ):
        command = option(command)
    return command


def read_options(
    timezone: str,
    boot_password: str | None,
    encryption_key: str | None,
    settings: tuple[str, ...] = (),
) -> ReadOptions:
    """Return `ReadOptions` from the options above. Raises `click.BadParameter`."""
    pairs = [setting.partition("=") for setting in settings]
    if not all(separator for _, separator, _ in pairs):
        raise click.BadParameter("expected NAME=VALUE", param_hint="--set")
    try:
        key = bytes.fromhex(encryption_key) if encryption_key else None
    except ValueError as error:
        raise click.BadParameter("not hexadecimal", param_hint="--encryption-key") from error
    return ReadOptions(
        timezone=timezone,
        boot_password=boot_password,
        encryption_key=key,
        settings={name: value for name, _, value in pairs},
    )


as_json = click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
path_argument = click.argument("path", type=click.Path())
