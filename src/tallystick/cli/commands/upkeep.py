"""``tallystick scrub`` and ``tallystick store``: looking after logs and stores that are whole."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tallystick.cli.output import (
    ANSWER_STYLES,
    Printer,
    as_json,
    path_argument,
    print_json,
    print_json_lines,
    print_problems,
    progress,
    read_options,
    reading_options,
    stake_text,
)
from tallystick.printable import counted, printable
from tallystick.reading import scrub
from tallystick.reading.scrubbing import Scrub, ScrubbedLog
from tallystick.records import Judgement
from tallystick.roles import RecoveryResult
from tallystick.services.page_store import PageStore, is_store

_SIZES = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class _Amount(click.ParamType[float]):
    """A number with a unit."""

    def __init__(self, name: str, form: str, units: dict[str, int]) -> None:
        self.name = name
        self._form, self._units = re.compile(form), units

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number in bytes a second, or in seconds."""
        if isinstance(value, float):
            return value
        found = self._form.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no {self.name}", param, ctx)
        if not found[2] and float(found[1]):
            self.fail(f"{value!r} has no unit: a {self.name}", param, ctx)
        found_unit = (found[2] or "").lower().removesuffix("b")
        unit = next(one for one in self._units if one.lower() == found_unit)
        return float(found[1]) * self._units[unit]


_NUMBER = r"(\d+(?:\.\d+)?)\s*"
_RATE = _Amount("rate, such as 20MB/s", _NUMBER + r"(?i:([kmg]i?b?|b)?(?:/s)?)", _SIZES | _BINARY)
_PERIOD = _Amount("time, such as 6h", _NUMBER + r"([smhd]?)", _SECONDS)


@click.command()
@path_argument
@click.option("--rate", type=_RATE, default="20MB/s", show_default=True, help="0 for no limit.")
@click.option("--once", is_flag=True, help="One pass; this is the default.")
@click.option("--every", type=_PERIOD, help="A pass each 6h, 7d ..., until interrupted.")
@as_json
@reading_options
@click.pass_context
def scrub_command(
    ctx: click.Context,
    /,
    path: str,
    rate: float,
    once: bool,
    every: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Read every log below PATH from the disk, slowly, and tell rot before recovery finds it.

    The logs may be in use. What is being written is read again, never called rot. With --every
    and --json each pass is one line. Exits with 0 if nothing is damaged, 1 if something is.
    """
    if once and every is not None:
        raise click.UsageError("--once and --every exclude each other")
    if every == 0:
        raise click.BadParameter("a pass each 0 seconds never rests", param_hint="--every")
    reading = read_options(**options)
    while True:
        start = time.monotonic()
        with progress("Scrubbing") as tell:
            found = scrub(path, rate=rate, options=reading, progress=tell)
        if not as_json:
            _show(Printer(streams=every is not None), found)
        elif every is None:
            print_json(found.to_dict())
        else:
            print_json_lines([found.to_dict()], streams=True)
        if every is None:
            ctx.exit(found.exit_code)
        time.sleep(max(start + every - time.monotonic(), 0))


def _show(out: Printer, found: Scrub) -> None:
    for one in found.logs:
        if one.rotten:
            _show_rotten(out, one)
    print_problems(out, found.problems, [])
    rotten = sum(one.rotten for one in found.logs)
    unsettled = sum(not one.settled for one in found.logs)
    rate = found.bytes / max(found.seconds, 1e-9) / 1e6
    moving = f", {unsettled} changing too fast to be read whole" if unsettled else ""
    out.line(
        f"{counted(len(found.logs), 'log')}, {rotten} damaged{moving}; "
        f"{found.bytes:,} bytes from disk in {found.seconds:,.1f} s ({rate:,.1f} MB/s)",
        style="bold red" if rotten else "",
    )


def _show_rotten(out: Printer, one: ScrubbedLog) -> None:
    judgement = one.judgement
    answer = (judgement.words, ANSWER_STYLES[judgement.answer])
    out.line(answer, f"  {one.system}  {one.path}")
    out.line(f"  Why: {judgement.text}")
    if stake := stake_text(judgement):
        out.line(f"  At stake: {stake}")
    for finding in one.findings:
        out.finding(finding)


@click.group()
def store_command() -> None:
    """Look after a page store."""


@store_command.command()
@click.argument("path", type=click.Path(exists=True, file_okay=False))
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
        out.line(answer, f"  {path}: {size}")
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
