"""What is read of logs, as lines for a person.

In: findings, answers, surroundings and problems. Out: lines of standard output, the gravest first;
at a terminal, where the end stays in sight, the gravest last.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from tallystick.cli.output import WIDTH, Draft, PrintedTexts, Printer, Unbroken, say, say_finding
from tallystick.printable import counted
from tallystick.reading.estate import NOTHING_DUE, EstateAnswer
from tallystick.reading.results import exit_code_of
from tallystick.reading.survey import NO_LOG
from tallystick.records import Answer, Finding, Judgement, Part, Severity, Surroundings
from tallystick.systems.held_back import LOADED_PER_S, held_back_text, redo_text
from tallystick.systems.surroundings import ALONE

LISTED_MAX = 20
"""Entries of one kind that a person is shown; ``--json`` has all of them."""
LOGLESS_MAX = 6
"""Names of files and paths that are no log that a person is shown."""
LOGS_MAX = 3
"""Logs that a person is shown beside what is said of them."""
PARTS_MAX = 5
"""Parts beside a log that a person is shown where something follows from them."""

ANSWER_STYLES = {
    Answer.SAFE: "bold green",
    Answer.CANNOT_TELL: "bold yellow",
    Answer.REFUSES: "bold red",
    Answer.LOSES: "bold red",
}


def gravity_of(finding: Finding) -> int:
    """Return a number that is greater the graver a finding is."""
    return [*Severity].index(finding.severity)


def print_findings(
    out: Printer, findings: Iterable[Finding], printed: PrintedTexts | None = None, each: int = 1
) -> None:
    """Print the first ``each`` findings of each kind, and how many others are like them."""
    kinds: dict[tuple[str, Severity], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.code, finding.severity), []).append(finding)
    for alike in kinds.values():
        for one in alike[:each]:
            out.finding(one, printed)
        if len(alike) > each:
            out.line(f"      and {len(alike) - each:,} more like it (--json of verify lists all)")


CALM = -10
"""Gravity of a block that says nothing of a log."""
HEADING = 2
"""Lines at the beginning of a block that say the answer."""


def print_logs(out: Printer, estate: EstateAnswer | None, blocks: Sequence[Draft]) -> None:
    """Print what logs say together, and a block of each; at a terminal the gravest comes last.

    That is what stays in sight, and of a block that does not fit its heading is repeated.
    """
    together = Draft()
    if estate is not None:
        print_estate(together, estate, gravest_last=out.rows is not None)
    if out.rows is None:
        if estate is not None:
            together.line()
        for block in (together, *blocks):
            block.print_to(out)
        return
    shown = sorted(blocks, key=lambda one: one.gravity)
    shown += [together] if estate is not None else []
    for block in shown:
        block.print_to(out)
    if shown and out.rows_of(shown[-1].lines) >= out.rows:
        shown[-1].print_to(out, HEADING)


def end_listing(ctx: click.Context, problems: list[Finding], *, damaged: bool = False) -> None:
    """Say what could not be read, and exit: 2 without a log, 1 where something is damaged."""
    failed, logless = failed_and_logless(problems)
    of_logs: dict[Finding, list[str]] = {}
    for problem in failed:
        # What says nothing but that it is of another log is said once, with these.
        alike = problem if problem.file is not None else replace(problem, system="", log="")
        of_logs.setdefault(alike, []).append(problem.log)
    for problem, logs in of_logs.items():
        say_finding(problem)
        named = [one for one in logs if problem.file is None and one not in problem.message]
        for one in named[:LOGS_MAX]:
            say(f"      {one}", err=True)
        if len(named) > LOGS_MAX:
            say(f"      and {counted(len(named) - LOGS_MAX, 'log')} more", err=True)
    if logless:
        say(_others_text(logless, LOGLESS_MAX), err=True)
    ctx.exit(exit_code_of(not lacks_logs(problems), problems, fine=not damaged))


def lacks_logs(problems: Iterable[Finding]) -> bool:
    """Return whether no path holds a log."""
    return any(one.code == NO_LOG and one.severity is not Severity.INFO for one in problems)


def listed(counts: dict[str, int]) -> str:
    """Return counts as "12 valid, 3 torn"; zeros are left out."""
    shown = [f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    return ", ".join(shown) or "none"


def print_estate(out: Printer, estate: EstateAnswer, *, gravest_last: bool = False) -> None:
    """Print what the logs say together, and what to type next.

    The gravest comes first, or last where it is asked for.
    """
    out.line((f"All {estate.count:,} logs together", "bold"))
    for line in reversed(estate.lines) if gravest_last else estate.lines:
        one = line.judgement
        text = f"{one.words}  {one.text}"
        first, *more = textwrap.wrap(
            text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False
        )
        words = f"  {one.words}"
        out.line((words, ANSWER_STYLES[one.answer]), first.removeprefix(words))
        for rest in more:
            out.line(rest)
        shown = line.logs[:LOGS_MAX] if one.answer is Answer.LOSES else ()
        for system, log in shown:
            out.line(Unbroken(f"      {system}: {log}"))
        if len(line.logs) > len(shown) > 0:
            out.line(
                f"      and {len(line.logs) - LOGS_MAX:,} more (--json lists all)", style="dim"
            )
    if estate.lines[0].judgement.reason != NOTHING_DUE:
        out.line(Unbroken(f"    {estate.command}"), style="bold")


def print_surroundings(
    out: Printer, around: Surroundings, printed: PrintedTexts | None = None
) -> None:
    """Print what a restart opens besides a log, but sentences that are ``printed`` already."""
    if around.kind == ALONE:
        out.line(
            "  This is about the log alone: nothing else of its database or broker is beside it."
        )
        return
    odd = [one for one in around.parts if not one.there or not one.fits]
    fitting = [one.part for one in around.parts if one not in odd]
    if fitting:
        out.line(f"  Beside the log, and fitting: {', '.join(fitting)}", style="dim")
    for one in odd[:PARTS_MAX]:
        state = "not looked into" if one.fits is None else "does not fit"
        out.line((f"  {one.part}: {state if one.there else 'not there'}", _part_style(one)))
        out.line("      ", Unbroken(f"at {one.path}"), f" ({one.found_by})", style="dim")
        if (printed or PrintedTexts()).is_new(one.why):
            out.line(f"      {one.why}")
    if len(odd) > PARTS_MAX:
        out.line(f"    and {len(odd) - PARTS_MAX:,} more (--json lists all)", style="dim")


def _part_style(one: Part) -> str:
    return "dim" if one.answer is Answer.SAFE else ANSWER_STYLES[one.answer]


def print_held_back(out: Printer, held: Mapping[str, Any] | None) -> None:
    """Print which transaction keeps a log from giving up old files, where one does."""
    if held:
        out.line(f"  Held back: {held_back_text(held)}")


def print_redo(out: Printer, strict: Mapping[str, Any]) -> None:
    """Print how much of a log is redone or loaded at a restart, where that takes a while."""
    if text := redo_text(strict.get("redo") or 0):
        out.line(f"  Redo: {text}")
    if text := redo_text(strict.get("loaded") or 0, LOADED_PER_S):
        out.line(f"  Load: {text}")


def stake_text(one: Judgement) -> str:
    """Return what is at stake in words; empty where nothing is, or nothing is known."""
    stake = one.at_stake
    parts = ((stake.transactions, "transaction"), (stake.rows, "row"))
    return ", ".join(counted(n, name) for n, name in parts if n)


_LINES = str.maketrans("", "", "\t\n\r")


def body_text(body: bytes) -> str:
    """Return a body as text, maybe of several lines, where it is one, else as hex digits."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body.hex()
    in_line = text.translate(_LINES)
    return text if in_line.isprintable() and (in_line or not text) else body.hex()


def print_problems(out: Printer, problems: Iterable[Finding], others: list[str]) -> None:
    """Print what could not be read, and what is no log."""
    failed, logless = failed_and_logless(problems)
    for problem in failed:
        out.finding(problem)
    if others := [*logless, *others]:
        texts = [_others_text(others, most) for most in range(LOGLESS_MAX, 0, -1)]
        fitting = (text for text in texts if len(text) <= WIDTH)
        out.line(next(fitting, texts[-1]), style="dim")


def failed_and_logless(problems: Iterable[Finding]) -> tuple[list[Finding], list[str]]:
    """Return what went wrong, and the paths that hold no log where others do."""
    found, without = list[Finding](), list[str]()
    for one in problems:
        if one.code == NO_LOG and one.severity is Severity.INFO:
            without.append(one.log.rstrip("/"))
        else:
            found.append(one)
    return found, without


def _others_text(others: list[str], most: int) -> str:
    counts = Counter(other.rpartition("/")[2] for other in dict.fromkeys(others))
    named = [name if count == 1 else f"{name} ({count})" for name, count in counts.items()]
    more = sum([*counts.values()][most:])
    return f"No log: {', '.join(named[:most])}{f' and {more} more' if more else ''}"
