"""``tallystick replay PATH``: bring what a write-behind service left pending to its targets."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click

from tallystick.cli.addresses import GivenPath, by_name, require_database
from tallystick.cli.options import Command, Seconds, as_json
from tallystick.cli.output import Printer, print_json
from tallystick.printable import logger
from tallystick.roles import Role
from tallystick.services.write_behind import WriteBehind
from tallystick.services.write_behind.service_dir import IDENTITY_FILE, LOG_FOLDER, recorded_system
from tallystick.storage.local import LOCAL
from tallystick.systems.registry import NATIVE, systems_with

_OPTION = "--target"


@click.command(cls=Command)
@click.argument("path", type=GivenPath(exists=True, file_okay=False))
@click.option(
    _OPTION,
    "targets",
    multiple=True,
    required=True,
    metavar="NAME=URL",
    help="A target and its SQLAlchemy URL; one for each name in the log.",
)
@click.option(
    "--system",
    type=click.Choice(systems_with(Role.PERSIST_LOG)),
    help="What the log stands on; the service has noted it.",
)
@click.option("--discard", multiple=True, type=int, help="Give this transaction up, durably.")
@click.option(
    "--timeout",
    type=Seconds(),
    help="Seconds to go on trying a target that cannot be reached; else it is tried once.",
)
@as_json
@click.pass_context
def command(
    ctx: click.Context,
    /,
    path: str,
    targets: tuple[str, ...],
    system: str,
    discard: tuple[int, ...],
    timeout: float | None,
    as_json: bool,
) -> None:
    """Apply what the stopped service in PATH left pending, per target and in order.

    May be repeated. Exit code 1 if something is still pending.
    """
    if not (Path(path) / IDENTITY_FILE).is_file():
        text = "no write-behind service"
        if (Path(path) / LOG_FOLDER).is_dir():
            text += f", or one that has lost its file {IDENTITY_FILE}: restore it first"
        raise click.BadParameter(f"{path} is {text}", param_hint="PATH")
    # What the service logs, the command says: what is pending, where, and why.
    log, nowhere = logger("tallystick.write_behind").logger, logging.NullHandler()
    log.addHandler(nowhere)
    ctx.call_on_close(lambda: log.removeHandler(nowhere))
    engines = _engines(targets)
    chosen = system or recorded_system(path, LOCAL) or NATIVE
    with WriteBehind(path, engines, system=chosen, on_incomplete="hold") as behind:
        before = len(behind.pending())
        for number in discard:
            _discard(behind, number)
        left = behind.replay(timeout)
    for engine in engines.values():
        engine.dispose()
    if as_json:
        print_json({"pending": before, "left": [one.number for one in left]})
    else:
        Printer().line(f"{before - len(left):,} of {before:,} applied or given up")
        for one in left:
            why = f": {'; '.join(map(str, one.targets))}"
            Printer().line(f"  still pending: {one.number} {one.reference}{why}", style="yellow")
    ctx.exit(int(bool(left)))


def _engines(targets: tuple[str, ...]) -> dict[str, Any]:
    import sqlalchemy

    engines: dict[str, Any] = {}
    for name, url in by_name(targets, _OPTION).items():
        require_database(name, url, _OPTION)
        try:
            engines[name] = sqlalchemy.create_engine(url)
        except (sqlalchemy.exc.ArgumentError, ImportError) as error:
            raise click.BadParameter(f"{name!r}: {error}", param_hint=_OPTION) from error
        except ValueError as error:  # what it quotes may be of a password
            text = (
                f"{name!r}: the address has no port where one is expected, or a host it cannot be"
            )
            raise click.BadParameter(text, param_hint=_OPTION) from error
    return engines


def _discard(behind: WriteBehind, number: int) -> None:
    try:
        behind.discard(number)
    except KeyError as error:
        raise click.BadParameter(f"{number} is not pending", param_hint="--discard") from error
