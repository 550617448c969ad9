"""``tallystick store check PATH``: every page of a page store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from tallystick.cli.addresses import GivenPath
from tallystick.cli.answers import ANSWER_STYLES
from tallystick.cli.options import Command, as_json
from tallystick.cli.output import Printer, Unbroken, print_json
from tallystick.printable import counted, printable
from tallystick.records import Judgement
from tallystick.roles import RecoveryResult
from tallystick.services.page_store import PageStore, is_store


@click.group()
def command() -> None:
    """Look after a page store."""


@command.command(cls=Command)
@click.argument("path", type=GivenPath(exists=True, file_okay=False))
@as_json
@click.pass_context
def check(ctx: click.Context, /, path: str, as_json: bool) -> None:
    """Open the page store at PATH, recovering it if it crashed, and check every page.

    The first word is the answer about its log as it was found, and about its pages. Exit code 1 if
    anything is wrong or in doubt, or if the log may have lost something.
    """
    if not is_store(Path(path)):  # opening would begin one beside whatever is there
        raise click.BadParameter(f"{printable(path)} holds no page store", param_hint="PATH")
    with PageStore(path) as store:
        defects = store.check()
        recovered = _with_pages(store.recovered, len(defects))
        tables, doubtful = store.tables(), store.in_doubt()
    if as_json:
        print_json(
            {
                "path": path,
                **recovered.to_dict(),
                "tables": list(tables),
                "in_doubt": [one.name for one in doubtful],
                "defects": [{"page": one.page, "what": one.what} for one in defects],
            }
        )
    else:
        out = Printer()
        judgement = recovered.judgement
        answer = (judgement.words, ANSWER_STYLES[judgement.answer])
        size = f"{counted(len(tables), 'table')}, {counted(len(defects), 'defect')}"
        out.line(answer, "  ", Unbroken(path), f": {size}")
        out.line(f"  Why: {judgement.text}")
        for one in defects:
            out.line(f"  page {one.page}: {one.what}", style="bold red")
        for transaction in doubtful:
            out.line(f"  in doubt: {transaction.name}", style="yellow")
    ctx.exit(int(bool(defects or doubtful) or not recovered.sound))


def _with_pages(log: RecoveryResult, defects: int) -> RecoveryResult:
    """Return the answer about a store: its log may be safe, and rows in its pages not be there."""
    if not defects or not log.sound:
        return log
    judgement = Judgement(
        reason="pages-damaged",
        text=f"{counted(defects, 'defect')} in the pages: rows on them cannot be read, or are not "
        "found.",
        decided_by="a backup of the store",
    )
    return replace(log, judgement=judgement)
