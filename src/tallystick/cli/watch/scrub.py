"""``tallystick scrub PATH``: logs read at a limited rate, to find rot before a recovery does."""

from __future__ import annotations

import re
import time
from typing import Any

import click

from tallystick.cli.answers import ANSWER_STYLES, print_problems, stake_text
from tallystick.cli.options import Command, as_json, paths_argument, read_options, reading_options
from tallystick.cli.output import Printer, Unbroken, print_json, print_json_lines, progress
from tallystick.printable import counted
from tallystick.reading import scrub
from tallystick.reading.scrubbing import Scrub, ScrubbedLog

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


@click.command(cls=Command)
@paths_argument
@click.option("--rate", type=_RATE, default="20MB/s", show_default=True, help="0 for no limit.")
@click.option("--once", is_flag=True, help="One pass; this is the default.")
@click.option("--every", type=_PERIOD, help="A pass each 6h, 7d ..., until interrupted.")
@as_json
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    rate: float,
    once: bool,
    every: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Read every log below PATHS from the disk, slowly, and tell rot before recovery finds it.

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
            found = scrub(paths, rate=rate, options=reading, progress=tell)
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
    out.line(answer, Unbroken(f"  {one.system}  {one.path}"))
    out.line(f"  Why: {judgement.text}")
    if stake := stake_text(judgement):
        out.line(f"  At stake: {stake}")
    for finding in one.findings:
        out.finding(finding)
