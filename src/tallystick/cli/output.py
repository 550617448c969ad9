"""What all commands share: where text goes, how it looks, what an exit code means.

Results go to standard output, everything else to standard error. Colours and progress
appear only on a terminal. Lines are never cut: a path has to be copied whole.

Commands print by this module only, and it prints no control character that a log, a name or an
argument brought along.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, Any, Protocol, TypeAlias, TypeVar, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from tallystick.arrow.numba_kernel import noticed
from tallystick.cli.addresses import GivenPath, given_password
from tallystick.printable import counted, printable, printable_lines
from tallystick.reading.estate import NOTHING_DUE, EstateAnswer
from tallystick.reading.results import exit_code_of
from tallystick.reading.survey import NO_LOG
from tallystick.records import Answer, Finding, Judgement, Part, Severity, Surroundings
from tallystick.systems.held_back import LOADED_PER_S, held_back_text, redo_text
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.surroundings import ALONE

LISTED_MAX = 20
"""Entries of one kind that a person is shown; ``--json`` has all of them."""

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Found = TypeVar("_Found", bound="_Reply")

WIDTH = 80
"""Columns of a terminal; only what is to be copied whole, as a path, is longer."""
LOGLESS_MAX = 6
"""Names of files and paths that are no log that a person is shown."""
LOGS_MAX = 3
"""Logs that a person is shown beside what is said of them."""

PARTS_MAX = 5
"""Parts beside a log that a person is shown where something follows from them."""

STYLES = {
    Severity.INFO: "dim",
    Severity.WARNING: "yellow",
    Severity.DAMAGE: "bold red",
    Severity.LOSS: "bold red",
}

ANSWER_STYLES = {
    Answer.SAFE: "bold green",
    Answer.CANNOT_TELL: "bold yellow",
    Answer.REFUSES: "bold red",
    Answer.LOSES: "bold red",
}


def print_nothing_more() -> None:
    """Discard what is printed from now on: the reader of standard output has closed it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class _Console(Console):
    streams = False

    def on_broken_pipe(self) -> None:
        if self.streams:
            raise BrokenPipeError
        print_nothing_more()

    def plain(self, text: str) -> None:
        """Print a line that has no style."""
        try:
            self.file.write(f"{text}\n")
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()


class Told:
    """The facts that a text has told: none is told twice."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def is_new(self, text: str) -> bool:
        """Return whether no text so far holds this one, and take it in."""
        words = " ".join(_WORD.findall(text.lower()))
        if any(words in one for one in self._texts):
            return False
        self._texts.append(words)
        return True


_WORD = re.compile(r"\w+")


class Whole(str):
    """Text in which no line is broken: it is to be typed or copied, as a command or a path."""

    __slots__ = ()


Piece: TypeAlias = str | tuple[str, str]
"""A piece of a line: text, or text and its style."""


class Printer:
    """Standard output for people: whatever a text holds, it is shown, never obeyed.

    No markup, no control characters, and one line stays one line, but at a terminal, where it goes
    on below its beginning, between two words. Where the reader goes away, the command goes on: its
    exit code is an answer, too.

    Args:
        streams: there is no end of what is printed; `BrokenPipeError` where the reader goes away.
    """

    def __init__(self, *, streams: bool = False) -> None:
        # Wide enough for every path; colours on a terminal only.
        plain = not sys.stdout.isatty()
        self._console = _Console(highlight=False, soft_wrap=True, width=200 if plain else None)
        self._console.streams = streams
        self._width = None if plain else max(self._console.width, 1)

    def line(self, *parts: Piece, style: str = "") -> None:
        """Print one line of pieces of text, at a terminal in as many as it needs."""
        text = "".join(printable(_text_of(part)) for part in parts)
        pieces = self._pieces(parts, text)
        if self._console.color_system is None:
            # Rich would write the same, at thirty times the cost: of rows there are many lines.
            for indent, begin, end in pieces:
                self._console.plain(f"{indent}{text[begin:end]}")
            return
        line = Text(style=style)
        for part in parts:
            line.append(printable(_text_of(part)), "" if isinstance(part, str) else part[1])
        for indent, begin, end in pieces:
            self._console.print(Text(indent).append_text(line[begin:end]))

    def _pieces(self, parts: Sequence[Piece], text: str) -> list[tuple[str, int, int]]:
        """Return where the lines of a text begin and end, and what they are indented by."""
        if self._width is None or cell_len(text) <= self._width:
            return [("", 0, len(text))]
        kept, at = list[range](), 0
        for part in parts:
            begin, at = at, at + len(printable(_text_of(part)))
            if isinstance(_text_of(part), Whole):
                kept.append(range(begin, at))
        return list(_broken(text, self._width, kept))

    @property
    def rows(self) -> int | None:
        """Return the lines of the terminal; None where it is none."""
        return self._console.size.height if self._console.is_terminal else None

    def rows_of(self, lines: Iterable[tuple[tuple[Piece, ...], str]]) -> int:
        """Return how many lines of the terminal these fill: a long word goes on in the next."""
        return sum(map(self._rows_of_line, (parts for parts, _ in lines)))

    def _rows_of_line(self, parts: Sequence[Piece]) -> int:
        text = "".join(printable(_text_of(part)) for part in parts)
        lines = (indent + text[begin:end] for indent, begin, end in self._pieces(parts, text))
        return sum(max(-(-cell_len(one) // (self._width or WIDTH)), 1) for one in lines)

    def finding(self, finding: Finding, told: Told | None = None) -> None:
        """Print a finding in a few lines: what, where, expected and found, what to do.

        Without what is ``told`` already.
        """
        for parts in _finding_lines(finding, told or Told()):
            self.line(*parts)


def _text_of(piece: Piece) -> str:
    return piece if isinstance(piece, str) else piece[0]


def _broken(text: str, width: int, kept: Sequence[range] = ()) -> Iterator[tuple[str, int, int]]:
    """Yield the lines of a text that is broken between words: indent, begin and end of each.

    A word that is longer than a line has one of its own, and so have commands, and text at places
    that are ``kept``, which are not broken.
    """
    own = len(text) - len(text.lstrip())
    indent = " " * (own + 2)
    kept = [*kept, *(range(*one.span()) for one in _TYPED.finditer(text))]
    gaps = [gap.span() for gap in _GAP.finditer(text, own)]
    gaps = [gap for gap in gaps if not any(gap[0] in one for one in kept)]
    begin, hang, end, after = 0, "", own, own
    for gap, word in [*gaps, (len(text), len(text))]:
        if cell_len(hang + text[begin:gap]) > width and end > begin + (0 if hang else own):
            yield hang, begin, end
            begin, hang = after, indent
        end, after = gap, word
    yield hang, begin, len(text)


_GAP = re.compile(r" +")
_TYPED = re.compile(r"tallystick [a-z]+(?: [^\s,;`]+)*")


def _lines_of(
    text: str, stream: IO[str], begin: str = "", kept: Sequence[str] = ()
) -> Iterator[str]:
    """Yield a line, or at a terminal as many as it needs, each with the same beginning.

    What is ``kept`` is not broken.
    """
    width = shutil.get_terminal_size((WIDTH, 24)).columns if stream.isatty() else None
    if width is None or cell_len(text) + len(begin) <= width:
        yield begin + text
        return
    places = [range(*one.span()) for some in kept for one in re.finditer(re.escape(some), text)]
    for indent, start, end in _broken(text, width - len(begin), places):
        yield f"{begin}{indent}{text[start:end]}"


def gravity_of(finding: Finding) -> int:
    """Return a number that is greater the graver a finding is."""
    return [*Severity].index(finding.severity)


def print_findings(
    out: Printer, findings: Iterable[Finding], told: Told | None = None, each: int = 1
) -> None:
    """Print the first ``each`` findings of each kind, and how many others are like them."""
    kinds: dict[tuple[str, Severity], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.code, finding.severity), []).append(finding)
    for alike in kinds.values():
        for one in alike[:each]:
            out.finding(one, told)
        if len(alike) > each:
            out.line(f"      and {len(alike) - each:,} more like it (--json of verify lists all)")


class Draft(Printer):
    """Lines that are printed later, or not at all."""

    def __init__(self, gravity: int = 0) -> None:
        self.gravity = gravity
        self.lines: list[tuple[tuple[Piece, ...], str]] = []

    def line(self, *parts: Piece, style: str = "") -> None:
        """Keep one line."""
        self.lines.append((parts, style))

    def print_to(self, out: Printer, most: int | None = None) -> None:
        """Print the lines, or the first of them."""
        for parts, style in self.lines[:most]:
            out.line(*parts, style=style)


CALM = -10
"""Gravity of a block that says nothing of a log."""
HEADING = 2
"""Lines at the beginning of a block that say the answer."""


def print_logs(out: Printer, estate: EstateAnswer | None, blocks: Sequence[Draft]) -> None:
    """Print what logs say together, and a block of each; at a terminal the gravest comes last.

    That is what stays in sight, and of a block that does not fit its heading is repeated.
    """
    together = Draft()
    if estate is not None:
        print_estate(together, estate, gravest_last=out.rows is not None)
    if out.rows is None:
        if estate is not None:
            together.line()
        for block in (together, *blocks):
            block.print_to(out)
        return
    shown = sorted(blocks, key=lambda one: one.gravity)
    shown += [together] if estate is not None else []
    for block in shown:
        block.print_to(out)
    if shown and out.rows_of(shown[-1].lines) >= out.rows:
        shown[-1].print_to(out, HEADING)


def say(text: str, *, err: bool = False, whole: Iterable[str] = ()) -> None:
    """Print one line without styles to standard output or standard error.

    ``whole`` is what stands in it that no line breaks, as a path.
    """
    kept = [*map(printable, whole)]
    for line in _lines_of(printable(text), sys.stderr if err else sys.stdout, kept=kept):
        click.echo(line, err=err)


def say_finding(finding: Finding) -> None:
    """Print a finding to standard error."""
    for number, parts in enumerate(_finding_lines(finding, Told())):
        line = "".join(map(_text_of, parts))
        whole = [one for one in map(_text_of, parts) if isinstance(one, Whole)]
        say(line if number else line.strip(), err=True, whole=whole)


def end_listing(ctx: click.Context, problems: list[Finding], *, damaged: bool = False) -> None:
    """Say what could not be read, and exit: 2 without a log, 1 where something is damaged."""
    found, without = told_apart(problems)
    of_logs: dict[Finding, list[str]] = {}
    for problem in found:
        # What says nothing but that it is of another log is said once, with these.
        alike = problem if problem.file is not None else replace(problem, system="", log="")
        of_logs.setdefault(alike, []).append(problem.log)
    for problem, logs in of_logs.items():
        say_finding(problem)
        named = [one for one in logs if problem.file is None and one not in problem.message]
        for one in named[:LOGS_MAX]:
            say(f"      {one}", err=True)
        if len(named) > LOGS_MAX:
            say(f"      and {counted(len(named) - LOGS_MAX, 'log')} more", err=True)
    if without:
        say(_others_text(without, LOGLESS_MAX), err=True)
    ctx.exit(exit_code_of(not lacks_logs(problems), problems, fine=not damaged))


def lacks_logs(problems: Iterable[Finding]) -> bool:
    """Return whether no path holds a log."""
    return any(one.code == NO_LOG and one.severity is not Severity.INFO for one in problems)


def complain(message: str, code: int, file: str | None = None) -> int:
    """Print a sentence to standard error, about a file perhaps; return ``code``."""
    say(f"tallystick: {message}", err=True, whole=[file] if file else [])
    return code


def notice(message: str) -> None:
    """Print to standard error what a person may wonder about meanwhile."""
    say(f"tallystick: {message}", err=True)


def complain_of_usage(error: click.ClickException) -> None:
    """Print to standard error what click has to say of a wrong use."""
    shown = io.StringIO()
    if isinstance(error, click.NoSuchOption) and (others := _commands_with(error)):
        error = click.UsageError(f"{error.message} It is one of {others}", error.ctx)
    error.show(shown)
    for line in shown.getvalue().expandtabs().removesuffix("\n").split("\n"):
        say(line, err=True)


def _commands_with(error: click.NoSuchOption) -> str:
    """Return the other commands that have an option, each as it is typed."""
    context = error.ctx.find_root() if error.ctx is not None else None
    if context is None or not isinstance(group := context.command, click.Group):
        return ""
    found = [
        f"tallystick {name}"
        for name in group.list_commands(context)
        for one in getattr(group.get_command(context, name), "params", ())
        if error.option_name in one.opts
    ]
    return ", ".join(found) if len(found) <= _COMMANDS_MAX else ""


_COMMANDS_MAX = 3
"""Commands that are named for an option that another one has; what many have is known."""


def print_json(value: Any) -> None:
    """Print one JSON value for a program, who may go away: the exit code is an answer, too."""
    try:
        click.echo(_json(value, indent=2))
    except BrokenPipeError:
        print_nothing_more()


def print_script(text: str) -> None:
    """Print what is to be run elsewhere, as it is; at a terminal, which obeys, with escapes."""
    shown = lines = printable_lines(text) if sys.stdout.isatty() else text
    if sys.stdout.isatty():
        lines = "\n".join(map(_script_line, shown.split("\n")))
    try:
        click.echo(lines.encode(), nl=False)
    except BrokenPipeError:
        print_nothing_more()
    if shown != text:
        notice("there are control characters, shown as escapes here: --output has them as they are")


def _script_line(line: str) -> str:
    """Return a line of a script; a remark in as many as the terminal needs."""
    remark = line.removeprefix(_REMARK)
    return line if remark == line else "\n".join(_lines_of(remark, sys.stdout, _REMARK))


_REMARK = "-- "


def print_json_lines(values: Iterable[Any], *, streams: bool = False) -> None:
    """Print one compact JSON object a line; ``streams`` as of `Printer`."""
    write = sys.stdout.write
    try:
        for value in values:
            write(_json(value, separators=(",", ":")) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        if streams:
            raise
        print_nothing_more()


def _json(value: Any, **form: Any) -> str:
    # Only ASCII; DEL is the one control character that JSON lets pass.
    return json.dumps(value, **form).replace("\x7f", "\\u007f")


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Yield a spinner that names what is being read, on a terminal only.

    That code is compiled meanwhile, or missed, is said on any standard error.
    """
    shown = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with shown, noticed(notice):
        task = shown.add_task(what)
        yield lambda name: shown.update(task, description=f"{what} {printable(name)}")


def _finding_lines(finding: Finding, told: Told) -> Iterator[list[Piece]]:
    name = f"  {finding.severity.value} {finding.code}"
    message = f": {finding.message}" if told.is_new(finding.message) else ""
    paths = [one for one in (finding.file, finding.log) if one]
    yield [(name, STYLES[finding.severity]), *_with_whole(message, paths)]
    if finding.file is not None and finding.file not in finding.message:
        yield [(Whole(f"      at {place(finding.file, finding.offset)}"), "dim")]
    if finding.expected is not None and finding.expected not in finding.message:
        text = f"      expected {finding.expected}; found {finding.found}"
        yield _with_whole(text, paths, "dim")
    if finding.advice is not None and told.is_new(finding.advice):
        yield _with_whole(f"      {finding.advice}", paths, "italic")


def _with_whole(text: str, paths: Sequence[str], style: str = "") -> list[Piece]:
    """Return a text in pieces, of which each of these paths is a `Whole` one."""
    longest = sorted(paths, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, longest))})", text) if paths else [text]
    return [(Whole(one) if one in paths else one, style) for one in parts if one]


def listed(counts: dict[str, int]) -> str:
    """Return counts as "12 valid, 3 torn"; zeros are left out."""
    shown = [f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    return ", ".join(shown) or "none"


def print_estate(out: Printer, estate: EstateAnswer, *, gravest_last: bool = False) -> None:
    """Print what the logs say together, the gravest first unless told so, and what to type next."""
    out.line((f"All {estate.count:,} logs together", "bold"))
    for line in reversed(estate.lines) if gravest_last else estate.lines:
        one = line.judgement
        text = f"{one.words}  {one.text}"
        first, *more = textwrap.wrap(
            text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False
        )
        words = f"  {one.words}"
        out.line((words, ANSWER_STYLES[one.answer]), first.removeprefix(words))
        for rest in more:
            out.line(rest)
        shown = line.logs[:LOGS_MAX] if one.answer is Answer.LOSES else ()
        for system, log in shown:
            out.line(Whole(f"      {system}: {log}"))
        if len(line.logs) > len(shown) > 0:
            out.line(
                f"      and {len(line.logs) - LOGS_MAX:,} more (--json lists all)", style="dim"
            )
    if estate.lines[0].judgement.reason != NOTHING_DUE:
        out.line(Whole(f"    {estate.command}"), style="bold")


def print_surroundings(out: Printer, around: Surroundings, told: Told | None = None) -> None:
    """Print what a restart opens besides a log, without what is ``told`` already."""
    if around.kind == ALONE:
        out.line(
            "  This is about the log alone: nothing else of its database or broker is beside it."
        )
        return
    odd = [one for one in around.parts if not one.there or not one.fits]
    fitting = [one.part for one in around.parts if one not in odd]
    if fitting:
        out.line(f"  Beside the log, and fitting: {', '.join(fitting)}", style="dim")
    for one in odd[:PARTS_MAX]:
        state = "not looked into" if one.fits is None else "does not fit"
        out.line((f"  {one.part}: {state if one.there else 'not there'}", _part_style(one)))
        out.line("      ", Whole(f"at {one.path}"), f" ({one.found_by})", style="dim")
        if (told or Told()).is_new(one.why):
            out.line(f"      {one.why}")
    if len(odd) > PARTS_MAX:
        out.line(f"    and {len(odd) - PARTS_MAX:,} more (--json lists all)", style="dim")


def _part_style(one: Part) -> str:
    return "dim" if one.answer is Answer.SAFE else ANSWER_STYLES[one.answer]


def print_held_back(out: Printer, held: Mapping[str, Any] | None) -> None:
    """Print which transaction keeps a log from giving up old files, where one does."""
    if held:
        out.line(f"  Held back: {held_back_text(held)}")


def print_redo(out: Printer, strict: Mapping[str, Any]) -> None:
    """Print how much of a log is redone or loaded at a restart, where that takes a while."""
    if text := redo_text(strict.get("redo") or 0):
        out.line(f"  Redo: {text}")
    if text := redo_text(strict.get("loaded") or 0, LOADED_PER_S):
        out.line(f"  Load: {text}")


def stake_text(one: Judgement) -> str:
    """Return what is at stake in words; empty where nothing is, or nothing is known."""
    stake = one.at_stake
    parts = ((stake.transactions, "transaction"), (stake.rows, "row"))
    return ", ".join(counted(n, name) for n, name in parts if n)


_LINES = str.maketrans("", "", "\t\n\r")


def body_text(body: bytes) -> str:
    """Return a body as text, maybe of several lines, where it is one, else as hex digits."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body.hex()
    in_line = text.translate(_LINES)
    return text if in_line.isprintable() and (in_line or not text) else body.hex()


def place(file: str | None, offset: int | None) -> str:
    """Return a file and an offset as a person writes them."""
    where = file or "?"
    return where if offset is None else f"{where} offset {offset}"


def print_problems(out: Printer, problems: Iterable[Finding], others: list[str]) -> None:
    """Print what could not be read, and what is no log."""
    found, without = told_apart(problems)
    for problem in found:
        out.finding(problem)
    if others := [*without, *others]:
        texts = [_others_text(others, most) for most in range(LOGLESS_MAX, 0, -1)]
        fitting = (text for text in texts if len(text) <= WIDTH)
        out.line(next(fitting, texts[-1]), style="dim")


def told_apart(problems: Iterable[Finding]) -> tuple[list[Finding], list[str]]:
    """Return what went wrong, and which paths hold no log where others do: a line names them."""
    found, without = list[Finding](), list[str]()
    for one in problems:
        if one.code == NO_LOG and one.severity is Severity.INFO:
            without.append(one.log.rstrip("/"))
        else:
            found.append(one)
    return found, without


def _others_text(others: list[str], most: int) -> str:
    counts = Counter(other.rpartition("/")[2] for other in dict.fromkeys(others))
    named = [name if count == 1 else f"{name} ({count})" for name, count in counts.items()]
    more = sum([*counts.values()][most:])
    return f"No log: {', '.join(named[:most])}{f' and {more} more' if more else ''}"


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
    pairs = [setting.partition("=") for setting in settings]
    if not all(separator for _, separator, _ in pairs):
        raise click.BadParameter("expected NAME=VALUE", param_hint="--set")
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        text = f"unknown time zone {timezone!r}; give an IANA name such as Europe/Berlin"
        raise click.BadParameter(text, param_hint="--timezone") from error
    return ReadOptions(
        timezone=timezone,
        boot_password=given_password() if boot_password is None else boot_password,
        encryption_key=key_from_hex(encryption_key, "--encryption-key"),
        settings={name: value for name, _, value in pairs},
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
    return cast(IO[bytes], _JsonOut()) if form == "jsonl" else sys.stdout.buffer


class _JsonOut:
    """Standard output for JSON; DEL, the one control character that it lets pass, is escaped."""

    def write(self, data: bytes | memoryview) -> int:
        return sys.stdout.buffer.write(bytes(data).replace(b"\x7f", b"\\u007f"))

    def flush(self) -> None:
        sys.stdout.buffer.flush()


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
