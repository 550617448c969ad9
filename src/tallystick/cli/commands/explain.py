"""``tallystick explain PATH``: per log what a restart would do, and what it would not say."""

from __future__ import annotations

from typing import Any

import click

from tallystick.cli.output import (
    ANSWER_STYLES,
    STYLES,
    Printer,
    as_json,
    path_argument,
    place,
    print_json,
    print_problems,
    progress,
    read_options,
    reading_options,
    stake_text,
)
from tallystick.cli.phrases import phrase
from tallystick.reading import explain
from tallystick.reading.results import Explanation, amount, counts, headline
from tallystick.records import Difference, Finding, Severity, Verdict

LISTED_MAX = 20
"""Entries of one kind that a person is shown; ``--json`` has all of them."""


@click.command()
@path_argument
@as_json
@reading_options
@click.pass_context
def command(ctx: click.Context, /, path: str, as_json: bool, **options: Any) -> None:
    """Say what a restart would keep, undo, leave in doubt and silently lose.

    Per log below PATH: the verdict of the log's own engine, the strict one from the bytes
    alone, and where the two part.
    """
    with progress("Reading") as tell:
        answer = explain(path, options=read_options(**options), progress=tell)
    if as_json:
        print_json(answer.to_dict())
    else:
        _show(Printer(), answer)
    ctx.exit(answer.exit_code)


def _show(out: Printer, answer: Explanation) -> None:
    for verdict, findings in zip(answer.logs, answer.findings, strict=True):
        _show_log(out, verdict, findings)
    print_problems(out, answer.problems, answer.others)


def _show_log(out: Printer, verdict: Verdict, findings: list[Finding]) -> None:
    one = verdict.judgement
    answer = (one.words, ANSWER_STYLES[one.answer])
    out.line(answer, f"  {verdict.system}  {verdict.path}  ({verdict.format})")
    out.line(f"  {headline(verdict)}", style="bold")
    out.line(f"  Why: {one.text}")
    if stake := stake_text(one):
        out.line(f"  At stake: {stake}")
    if one.decided_by:
        out.line(f"  What would decide it: {one.decided_by}")
    _show_list(out, "In doubt", verdict.strict.get("in_doubt"))
    _show_list(out, "A restart would lose without a word", verdict.strict.get("lost"))
    for difference in verdict.differences:
        _show_difference(out, difference)
    for finding in findings[:LISTED_MAX]:
        out.finding(finding)
    _show_rest(out, len(findings))
    records = counts(verdict.strict.get("records"))
    read = ", ".join(f"{count:,} {name}" for name, count in records.items()) or "no record"
    out.line(f"  Read: {read}", style="dim")
    out.line()


def _show_list(out: Printer, title: str, values: Any) -> None:
    if not amount(values):
        return
    entries = _entries(values)
    out.line(f"  {title}:", style="bold")
    for entry in entries[:LISTED_MAX]:
        out.line(f"    {entry}")
    _show_rest(out, len(entries))


def _show_rest(out: Printer, count: int) -> None:
    if count > LISTED_MAX:
        out.line(f"    and {count - LISTED_MAX:,} more (--json lists all)", style="dim")


def _entries(values: Any) -> list[str]:
    if isinstance(values, dict):
        return [f"{name}: {phrase(value)}" for name, value in values.items() if value]
    if isinstance(values, list | tuple | set | frozenset):
        return [phrase(value) for value in values]
    return [phrase(values)]


def _show_difference(out: Printer, difference: Difference) -> None:
    severity = Severity(difference.severity)
    out.line(f"  {severity.value} {difference.what}", style=STYLES[severity])
    out.line(f"      {difference.meaning}")
    out.line(f"      its own engine: {difference.engine}")
    out.line(f"      the bytes:      {difference.strict}")
    if difference.file is not None:
        out.line(f"      evidence: {place(difference.file, difference.offset)}", style="dim")
