"""``tallystick store``: looking after a page store."""

from __future__ import annotations

import click

from tallystick.cli.output import Printer, as_json, print_json
from tallystick.services.page_store import PageStore


@click.group()
def command() -> None:
    """Look after a page store."""


@command.command()
@click.argument("path", type=click.Path(exists=True, file_okay=False))
@as_json
@click.pass_context
def check(ctx: click.Context, /, path: str, as_json: bool) -> None:
    """Open the page store at PATH, recovering it if it crashed, and check every page.

    Exit code 1 if anything is wrong or in doubt.
    """
    with PageStore(path) as store:
        defects = store.check()
        tables, doubtful = store.tables(), store.in_doubt()
    if as_json:
        print_json(
            {
                "path": path,
                "tables": list(tables),
                "in_doubt": [one.name for one in doubtful],
                "defects": [{"page": one.page, "what": one.what} for one in defects],
            }
        )
    else:
        out = Printer()
        out.line(f"{path}: {len(tables)} tables, {len(defects)} defects")
        for one in defects:
            out.line(f"  page {one.page}: {one.what}", style="bold red")
        for transaction in doubtful:
            out.line(f"  in doubt: {transaction.name}", style="yellow")
    ctx.exit(int(bool(defects or doubtful)))
