"""Options and arguments that several commands have.

In: what was typed. Out: `ReadOptions`, a file to write to, or a usage error.
"""

from __future__ import annotations

import io
import os
import sys
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Callable, Sequence
from typing import IO, Any, Protocol, TypeVar, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from tallystick.arguments import seconds
from tallystick.cli.addresses import GivenPath, by_name, given_password
from tallystick.cli.output import Printer, print_json, progress
from tallystick.printable import printable_lines
from tallystick.systems.protocol import ReadOptions

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Found = TypeVar("_Found", bound="_Reply")


class Command(click.Command):
    """A command that takes an option once, but those that may be repeated: no value is dropped."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what was typed, or leave with a usage error."""
        given = Counter() if ctx.resilient_parsing else Counter(self._given(ctx, args))
        for one, count in given.items():
            if count > 1 and isinstance(one, click.Option) and not (one.multiple or one.is_flag):
                message = f"it is given {count} times, and takes one value"
                raise click.BadParameter(message, ctx, one)
        return super().parse_args(ctx, args)

    def _given(self, ctx: click.Context, args: list[str]) -> list[click.Parameter]:
        return self.make_parser(ctx).parse_args([*args])[2]


def reading_options(command: _Command) -> _Command:
    """Add the options for what a reader has to know and the bytes do not hold."""
    for option in (
        click.option("--timezone", default="UTC", help="Zone of H2's DATE and TIME values."),
        click.option("--boot-password", help="Password of an encrypted Derby or H2 database."),
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


def key_from_hex(text: str | None, option: str) -> bytes | None:
    """Return the key that an option gives. Raises `click.BadParameter`."""
    try:
        return None if text is None else bytes.fromhex(text)
    except ValueError as error:
        raise click.BadParameter("not hexadecimal", param_hint=option) from error


def read_options(
    timezone: str,
    boot_password: str | None,
    encryption_key: str | None,
    settings: tuple[str, ...] = (),
    log_only: bool = False,
) -> ReadOptions:
    """Return `ReadOptions` from the options above. Raises `click.BadParameter`."""
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        text = f"unknown time zone {timezone!r}; give an IANA name such as Europe/Berlin"
        raise click.BadParameter(text, param_hint="--timezone") from error
    return ReadOptions(
        timezone=timezone,
        boot_password=given_password() if boot_password is None else boot_password,
        encryption_key=key_from_hex(encryption_key, "--encryption-key"),
        settings=by_name(settings, "--set", "VALUE"),
        log_only=log_only,
    )


as_json = click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
path_argument = click.argument("path", type=GivenPath())
paths_argument = click.argument("paths", nargs=-1, required=True, type=GivenPath())
output_option = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    callback=lambda _ctx, _option, value: None if value == "-" else value,
    help="File; standard output if left out, or '-'.",
)


class Seconds(click.ParamType[float]):
    """A time, as the library takes it: NaN is none, and less than 0 neither."""

    name = "seconds"

    def __init__(self, *, positive: bool = False) -> None:
        self._positive = positive

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number of seconds."""
        try:
            return seconds(float(value), "it", positive=self._positive)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class NewPath(click.Path):
    """The path of what is made; ``-`` is none, as nothing of it goes to standard output."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return the path, or leave with a usage error."""
        if value == "-":
            self.fail("nothing of it goes to standard output; of a file '-' the path is './-'")
        return super().convert(value, param, ctx)


def form_of(form: str | None, *, as_json: bool) -> str | None:
    """Return the form of an output for which there are ``--to`` and ``--json``.

    Raises:
        click.UsageError: they ask for two.
    """
    if as_json and form not in (None, "jsonl"):
        raise click.UsageError(f"--json is --to jsonl, and excludes --to {form}")
    return "jsonl" if as_json else form


_BINARY = ("parquet", "arrow")


def output_target(form: str, output: str | None) -> str | IO[bytes]:
    """Return the file that is named, or standard output.

    Raises:
        click.UsageError: a terminal would get a form that is no text.
    """
    if output is not None:
        return output
    if form in _BINARY and sys.stdout.isatty():
        raise click.UsageError(f"{form} is binary: name a file with --output")
    if form == "jsonl":
        return cast(IO[bytes], _JsonOut())
    return cast(IO[bytes], _Shown()) if sys.stdout.isatty() else sys.stdout.buffer


class _JsonOut:
    """Standard output for JSON; DEL, the one control character that it lets pass, is escaped."""

    def write(self, data: bytes | memoryview) -> int:
        return sys.stdout.buffer.write(bytes(data).replace(b"\x7f", b"\\u007f"))

    def flush(self) -> None:
        sys.stdout.buffer.flush()


class _Shown(io.RawIOBase):
    """A terminal for CSV: it would obey control characters, which a pipe gets as they are."""

    def __init__(self) -> None:
        self._text = getincrementaldecoder("utf-8")()

    def write(self, data: Any) -> int:
        given = bytes(data)
        text = self._text.decode(given).replace("\r\n", "\n")
        sys.stdout.buffer.write(printable_lines(text).encode())
        return len(given)

    def flush(self) -> None:
        sys.stdout.buffer.flush()

    def writable(self) -> bool:
        return True


class _Reply(Protocol):
    """What the reading of a folder gives."""

    @property
    def exit_code(self) -> int: ...

    def to_dict(self) -> dict[str, Any]: ...


def reply(
    read: Callable[..., _Found],
    paths: Sequence[str],
    show: Callable[[Printer, _Found], None],
    *,
    as_json: bool,
    **options: Any,
) -> None:
    """Read what is below ``paths``, print it for a person or a program, and exit with its code.

    Args:
        read: a function of `tallystick.reading`.
        paths: its argument.
        show: prints what it returns for a person.
        as_json: print it for a program.
        options: what `reading_options` gave.
    """
    with progress("Reading") as tell:
        found = read(paths, options=read_options(**options), progress=tell)
    if as_json:
        print_json(found.to_dict())
    else:
        show(Printer(), found)
    click.get_current_context().exit(found.exit_code)
