"""``tallystick bench NAME``: our figures beside those of peers.

In: the name of a benchmark, and arguments for it. Out: what the benchmark prints: rates, the
durability level, syncs per commit. Benchmarks stand in the folder ``benchmarks`` of a source
checkout, one runnable module each; without one the command says where to get them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

import tallystick
from tallystick.cli.options import Command

_RUNS = 'if __name__ == "__main__":'
_FOR_ANOTHER = "engine_syncs"
"""Runs by itself, but only below strace, where another benchmark starts it."""


def benchmarks() -> dict[str, Path]:
    """Return the benchmarks of the checkout that this package is run from, by name."""
    folder = Path(tallystick.__file__).resolve().parents[2] / "benchmarks"
    return {
        path.stem: path
        for path in sorted(folder.glob("*.py"))
        if path.stem != _FOR_ANOTHER and _RUNS in path.read_text("utf-8")
    }


@click.command(cls=Command, context_settings={"ignore_unknown_options": True})
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
