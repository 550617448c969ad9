"""Write the manual pages of the commands, from the commands themselves.

Usage: python scripts/man_pages.py [FOLDER]; by default ``build/man``, from where `man_hook.py`
takes them into the distributions. In: the command line, with click and rich. Out: ``tallystick.1``
and one page for each command and each command of a group.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
EXITS = (
    ("0", "Fine."),
    ("1", "Damage or disagreement was found, or something is in doubt."),
    ("2", "Something cannot be read, or was used in a wrong way."),
)
"""As docs/guide/cli.md has them."""


def pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    from tallystick.cli import tallystick

    found: dict[str, str] = {}
    settings = tallystick.context_settings
    with click.Context(tallystick, info_name="tallystick", **settings) as context:
        _add(found, tallystick, context)
    return found


def _add(found: dict[str, str], command: click.Command, context: click.Context) -> None:
    name = context.command_path.replace(" ", "-")
    found[f"{name}.1"] = "\n".join(_page(name, command, context)) + "\n"
    for below, one in _commands(command, context):
        with click.Context(one, info_name=below, parent=context) as inner:
            _add(found, one, inner)


def _commands(
    command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield name, found


def _page(name: str, command: click.Command, context: click.Context) -> Iterator[str]:
    from tallystick import __version__

    moment = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "1580601600")))
    day = time.strftime("%Y-%m-%d", moment)
    yield f'.TH "{name.upper()}" 1 "{day}" "tallystick {__version__}" "Tallystick"'
    yield from (".SH NAME", f"{roff(name)} \\- {roff(command.get_short_help_str(200))}")
    words = " ".join(command.collect_usage_pieces(context))
    yield from (".SH SYNOPSIS", f"\\fB{roff(context.command_path)}\\fR {roff(words)}")
    yield ".SH DESCRIPTION"
    for paragraph in re.split(r"\n\s*\n", (command.help or "").strip()):
        yield from (".PP", roff(" ".join(paragraph.split())))
    options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
    yield ".SH OPTIONS"
    for option, text in filter(None, (one.get_help_record(context) for one in options)):
        yield from (".TP", f"\\fB{roff(option)}\\fR", roff(text))
    if below := [*_commands(command, context)]:
        yield ".SH COMMANDS"
        for title, one in below:
            page = f"{name}-{title}"
            yield from (".TP", f"\\fB{roff(page)}\\fR(1)", roff(one.get_short_help_str(200)))
    yield ".SH EXIT STATUS"
    for code, text in EXITS:
        yield from (".TP", f"\\fB{code}\\fR", roff(text))
    above = context.parent
    if above is not None:
        yield from (".SH SEE ALSO", f"\\fB{roff(above.command_path.replace(' ', '-'))}\\fR(1)")


def roff(text: str) -> str:
    """Return a text of one line that roff prints as it is, and does not break or obey."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main(folder: str = str(ROOT / "build/man")) -> None:
    """Write the pages into a folder, in the place of older ones."""
    made = Path(folder)
    made.mkdir(parents=True, exist_ok=True)
    for old in made.glob("*.1"):
        old.unlink()
    for name, text in pages().items():
        (made / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:2])
