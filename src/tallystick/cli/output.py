"""Where text goes and how it looks.

In: text of commands, which may hold anything. Out: results on standard output, everything else on
standard error, all through this module: it prints no control character that a log, a name or an
argument brought along.

Colours and progress appear only on a terminal. Lines are never cut: a path has to be copied whole.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, TypeAlias

import click
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from tallystick.arrow.numba_kernel import noticed
from tallystick.printable import printable, printable_lines
from tallystick.records import Finding, Severity

WIDTH = 80
"""Columns of a terminal; only what is to be copied whole, as a path, is longer."""

STYLES = {
    Severity.INFO: "dim",
    Severity.WARNING: "yellow",
    Severity.DAMAGE: "bold red",
    Severity.LOSS: "bold red",
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


class PrintedTexts:
    """The sentences that an answer has printed: what one has said, no later one repeats."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def is_new(self, text: str) -> bool:
        """Return whether no text so far holds this one, and remember it."""
        words = " ".join(_WORD.findall(text.lower()))
        if any(words in one for one in self._texts):
            return False
        self._texts.append(words)
        return True


_WORD = re.compile(r"\w+")


class Unbroken(str):
    """Text that is not broken into lines: it is to be typed or copied, as a command or a path."""

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
            if isinstance(_text_of(part), Unbroken):
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

    def finding(self, finding: Finding, printed: PrintedTexts | None = None) -> None:
        """Print a finding in a few lines: what, where, expected and found, what to do.

        Sentences that are in ``printed`` are left out.
        """
        for parts in _finding_lines(finding, printed or PrintedTexts()):
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


def say(text: str, *, err: bool = False, whole: Iterable[str] = ()) -> None:
    """Print one line without styles to standard output or standard error.

    ``whole`` is what stands in it that no line breaks, as a path.
    """
    kept = [*map(printable, whole)]
    for line in _lines_of(printable(text), sys.stderr if err else sys.stdout, kept=kept):
        click.echo(line, err=err)


def say_finding(finding: Finding) -> None:
    """Print a finding to standard error."""
    for number, parts in enumerate(_finding_lines(finding, PrintedTexts())):
        line = "".join(map(_text_of, parts))
        whole = [one for one in map(_text_of, parts) if isinstance(one, Unbroken)]
        say(line if number else line.strip(), err=True, whole=whole)


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
        lines = "\n".join(_script_lines(shown))
    try:
        click.echo(lines.encode(), nl=False)
    except BrokenPipeError:
        print_nothing_more()
    if shown != text:
        notice("there are control characters, shown as escapes here: --output has them as they are")


def _script_lines(text: str) -> Iterator[str]:
    """Yield the lines of a script; a remark in as many as the terminal needs.

    What looks like one in a text of several lines is none.
    """
    quote = ""
    for line in text.split("\n"):
        if line.startswith(_REMARK) and not quote:
            yield from _lines_of(line.removeprefix(_REMARK), sys.stdout, _REMARK)
            continue
        yield line
        for letter in line:
            if letter == quote:
                quote = ""
            elif not quote and letter in "'\"":
                quote = letter


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


def _finding_lines(finding: Finding, printed: PrintedTexts) -> Iterator[list[Piece]]:
    name = f"  {finding.severity.value} {finding.code}"
    message = f": {finding.message}" if printed.is_new(finding.message) else ""
    paths = [one for one in (finding.file, finding.log) if one]
    yield [(name, STYLES[finding.severity]), *_with_whole(message, paths)]
    if finding.file is not None and finding.file not in finding.message:
        yield [(Unbroken(f"      at {place(finding.file, finding.offset)}"), "dim")]
    if finding.expected is not None and finding.expected not in finding.message:
        text = f"      expected {finding.expected}; found {finding.found}"
        yield _with_whole(text, paths, "dim")
    if finding.advice is not None and printed.is_new(finding.advice):
        yield _with_whole(f"      {finding.advice}", paths, "italic")


def _with_whole(text: str, paths: Sequence[str], style: str = "") -> list[Piece]:
    """Return a text in pieces, of which each of these paths is a `Unbroken` one."""
    longest = sorted(paths, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, longest))})", text) if paths else [text]
    return [(Unbroken(one) if one in paths else one, style) for one in parts if one]


def place(file: str | None, offset: int | None) -> str:
    """Return a file and an offset as a person writes them."""
    where = file or "?"
    return where if offset is None else f"{where} offset {offset}"
