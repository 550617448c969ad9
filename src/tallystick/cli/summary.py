"""The summary of a pipeline run in words that a newcomer understands."""

from __future__ import annotations

from typing import Any

from tallystick.cli.answers import listed
from tallystick.cli.output import Printer, Unbroken
from tallystick.pipeline.summary import RunSummary
from tallystick.printable import counted
from tallystick.systems.registry import system

DUE = {
    "commit": "commit these branches: their coordinator has decided so",
    "rollback": "roll these branches back: no decision to commit is recorded",
    "foreign": "leave these to the coordinator that owns them: its log is not here",
    "heuristic_mismatch": "mend by hand: a branch went against the decision",
}
"""What each resolution asks for."""


def show_summary(out: Printer, summary: RunSummary, where: str) -> None:
    """Print logs, transactions, what is in doubt and what is due, and where the tables are."""
    for name, count in summary.logs.items():
        states = listed(summary.transactions.get(name, {}))
        out.line((_title(name), "bold"), f"  {counted(count, 'log')}: {states}")
    total = sum(summary.bytes.values())
    out.line(f"{counted(summary.files, 'file')}, {total:,} bytes: {listed(summary.bytes)}")
    out.line(f"Records: {listed(summary.records)}")
    _show_due(out, summary)
    _show_findings(out, summary)
    for text in summary.no_log:
        out.line(f"Not read: {text}", style="dim")
    read = counted(len(summary.read), "log") if summary.read else "nothing new"
    out.line()
    out.line(f"Read {read} in {summary.seconds:.1f} s. Tables: ", Unbroken(where))


def _show_due(out: Printer, summary: RunSummary) -> None:
    total = sum(summary.resolutions.values())
    if not total:
        return
    settled = summary.resolutions.get("none", 0)
    out.line(f"Global transactions: {total:,}, of which {settled:,} need nothing")
    for resolution, words in DUE.items():
        rows = [row for row in summary.due if row["resolution"] == resolution]
        if not rows:
            continue
        out.line(f"  {summary.resolutions[resolution]:,} to {words}", style="bold yellow")
        for row in rows:
            out.line(f"    {_due_text(row)}")


def _due_text(row: dict[str, Any]) -> str:
    branches = ", ".join(
        f"{branch['resource'] or branch['system'] or '?'} {branch['state'].replace('_', ' ')}"
        for branch in row["branches"]
    )
    owner = row["owner"] or "unknown owner"
    return f"{bytes(row['gtrid']).hex()} of {owner}: {branches}"


def _show_findings(out: Printer, summary: RunSummary) -> None:
    out.line(f"Findings: {listed(summary.findings)}")
    for row in summary.severe:
        where = f" ({row['file']} offset {row['offset']})" if row["file"] else ""
        out.line(f"  {row['severity']} {row['code']}: {row['message']}{where}", style="red")


def _title(name: str) -> str:
    try:
        return system(name).title
    except KeyError:  # tables may outlive a system
        return name
