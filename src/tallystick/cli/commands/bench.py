"""What comes beside the package: ``tallystick bench NAME`` and ``tallystick demo FOLDER``.

In: the name of a benchmark, and arguments for it. Out: what the benchmark prints: rates, the
durability level, syncs per commit. Benchmarks stand in the folder ``benchmarks`` of a source
checkout, one runnable module each; without one the command says where to get them.

Or in: a folder that does not exist yet. Out: the logs of an example estate in it, and what the
commands of first aid say of them. They come with the package; in a checkout they stand in
``examples/estate``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click

import tallystick
from tallystick.cli.output import Printer
from tallystick.printable import shell_quoted

_RUNS = 'if __name__ == "__main__":'
_FOR_ANOTHER = "engine_syncs"
"""Runs by itself, but only below strace, where another benchmark starts it."""
_ESTATES = (
    Path(__file__).resolve().parents[1] / "estate",
    Path(__file__).resolve().parents[4] / "examples" / "estate",
)
_WALK = (
    ("What do all logs say together, and which one first?", ("triage",)),
    ("Who waits for whom, what is due, and which record says so?", ("indoubt", "list")),
)


def benchmarks() -> dict[str, Path]:
    """Return the benchmarks of the checkout that this package is run from, by name."""
    folder = Path(tallystick.__file__).resolve().parents[2] / "benchmarks"
    return {
        path.stem: path
        for path in sorted(folder.glob("*.py"))
        if path.stem != _FOR_ANOTHER and _RUNS in path.read_text("utf-8")
    }


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name", default="list")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(name: str, arguments: tuple[str, ...]) -> None:
    """Run a benchmark; "all" runs each with its defaults, "list" names them."""
    known = benchmarks()
    if not known:
        raise click.UsageError("benchmarks come with a source checkout of tallystick")
    if name == "list":
        for one in known:
            click.echo(one)
        return
    if name != "all" and name not in known:
        raise click.UsageError(f"no benchmark {name!r}; there is {', '.join(known)}")
    failed = False
    for one in known if name == "all" else (name,):
        if name == "all":
            click.echo(f"== {one}")
        done = subprocess.run([sys.executable, str(known[one]), *arguments], check=False)
        failed |= done.returncode != 0
    if failed:
        sys.exit(1)


@click.command("demo")
@click.argument("folder", default="tallystick-demo", type=click.Path(exists=False))
@click.pass_context
def demo_command(ctx: click.Context, folder: str) -> None:
    """Write an example estate to FOLDER, and walk through it with the commands of first aid.

    Two databases (H2, Derby) and a broker (Artemis) under one coordinator (Bitronix), halted in
    the middle of transfers, in four situations. FOLDER must not exist; remove it when you are done.
    """
    source = next((one for one in _ESTATES if one.is_dir()), None)
    if source is None:
        raise click.UsageError("the example estate is not installed with this package")
    try:
        shutil.copytree(source, folder)
    except FileExistsError:
        raise click.UsageError(f"{folder} exists; name a folder that does not") from None
    out, where = Printer(), shell_quoted(folder)
    out.line(f"An estate of four situations, halted in the middle of transfers: {where}")
    for question, words in _WALK:
        out.line()
        out.line(question, style="bold")
        out.line(f"$ tallystick {' '.join(words)} {where}", style="bold")
        _run(ctx, [*words, folder])
    out.line()
    out.line("Go on with these:", style="bold")
    for name in ("explain", "runbook", "dump", "inspect --json"):
        out.line(f"  tallystick {name} {where}")


def _run(ctx: click.Context, arguments: list[str]) -> None:
    """Run another command; that its answer is no good news is not an error of the demo."""
    group = ctx.find_root().command
    with (
        suppress(click.exceptions.Exit, SystemExit),
        group.make_context("tallystick", arguments) as context,
    ):
        group.invoke(context)
