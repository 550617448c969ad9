"""``tallystick demo FOLDER``: an example estate, and a walk through it.

In: a folder that does not exist yet. Out: the logs of an example estate in it, and what the
commands of first aid say of them. They come with the package; in a checkout they stand in
``examples/estate``.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack, suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from tallystick.cli.options import Command, NewPath
from tallystick.cli.output import Printer, Unbroken
from tallystick.printable import shell_quoted
from tallystick.storage.local import naming

_ESTATES: tuple[Traversable, ...] = (
    files("tallystick.cli").joinpath("estate"),
    Path(__file__).resolve().parents[4] / "examples" / "estate",
)
_WALK = (
    ("What do all logs say together, and which one first?", ("triage",)),
    ("Who waits for whom, what is due, and which record says so?", ("indoubt", "list")),
)


@click.command("demo", cls=Command)
@click.argument("folder", default="tallystick-demo", type=NewPath(exists=False))
@click.pass_context
def command(ctx: click.Context, folder: str) -> None:
    """Write an example estate to FOLDER, and walk through it with the commands of first aid.

    Two databases (H2, Derby) and a broker (Artemis) under one coordinator (Bitronix), halted in
    the middle of transfers, in four situations. FOLDER must not exist; remove it when you are done.
    """
    source = next((one for one in _ESTATES if one.is_dir()), None)
    if source is None:
        raise click.UsageError("the example estate is not installed with this package")
    _make(source, Path(folder))
    out, where = Printer(), shell_quoted(folder)
    out.line("An estate of four situations, halted in the middle of transfers: ", Unbroken(where))
    for question, words in _WALK:
        out.line()
        out.line(question, style="bold")
        out.line(Unbroken(f"$ tallystick {' '.join(words)} {where}"), style="bold")
        _run(ctx, [*words, folder])
    out.line()
    out.line("Go on with these:", style="bold")
    for name in ("explain", "runbook", "dump", "inspect --json"):
        out.line(Unbroken(f"  tallystick {name} {where}"))


def _make(source: Traversable, folder: Path) -> None:
    """Write the estate to a new folder; of one that cannot be written whole nothing is left."""
    try:
        folder.mkdir()
    except FileExistsError:
        raise click.UsageError(f"{folder} exists; name a folder that does not") from None
    with naming(folder), ExitStack() as undo:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        _write(source, folder)
        undo.pop_all()


def _write(source: Traversable, folder: Path) -> None:
    """Write what is in a folder of the package, which may stand in a zip, to one that is empty."""
    for one in source.iterdir():
        if one.is_dir():
            (folder / one.name).mkdir()
            _write(one, folder / one.name)
        else:
            folder.joinpath(one.name).write_bytes(one.read_bytes())


def _run(ctx: click.Context, arguments: list[str]) -> None:
    """Run another command; that its answer is no good news is not an error of the demo."""
    group = ctx.find_root().command
    with (
        suppress(click.exceptions.Exit, SystemExit),
        group.make_context("tallystick", arguments) as context,
    ):
        group.invoke(context)
