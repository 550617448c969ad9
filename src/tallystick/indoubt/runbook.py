"""What a person types to end branches in doubt, in order, with the evidence, to be signed off.

In: what is in doubt, and live resources. Out: a statement for each branch, and a page in Markdown.
Nothing is typed here, and nothing is written.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tallystick.indoubt.listing import LIVE, InDoubt, InDoubtReport
from tallystick.printable import counted, printable, shell_quoted
from tallystick.reconcile.alarms import ADVICE, LOST_COMMIT, UNPROVED
from tallystick.reconcile.decision_table import Resolution
from tallystick.reconcile.ids import forms
from tallystick.records import Xid
from tallystick.roles.coordinator_files import LOG_FOLDER
from tallystick.services.page_store import is_store
from tallystick.systems.protocol import Statements
from tallystick.systems.registry import resource_traits

WIDTH = 80

_OF_DATABASES = {
    "postgresql": Statements(
        "In psql, in the database of the branch, as its owner or a superuser",
        "SELECT gid, prepared, owner FROM pg_prepared_xacts;",
        "{VERB} PREPARED '{gid}';",
    ),
    "mysql": Statements(
        "In the client of the server", "XA RECOVER FORMAT='SQL';", "XA {VERB} {literal};"
    ),
}
"""Statements of live databases, by the dialect of the resource."""

_SETTLES = (Resolution.COMMIT, Resolution.ROLLBACK)
_SIGN = "- [ ] done by ____________________ at ____________________"


@dataclass(frozen=True, slots=True)
class Act:
    """What ends one branch.

    Attributes:
        branch: the name of its resource, or of its log.
        where: where it is typed.
        listing: what shows the branch there, before and after; may be empty.
        typed: what is typed: one line, or a script; empty where that is not known.
    """

    branch: str
    where: str
    listing: str
    typed: str


def name_of(branch: Mapping[str, Any]) -> str:
    """Return what a branch is called: its resource, or its log."""
    return str(branch["resource"] or branch["log"] or "?")


def act_of(
    one: InDoubt, branch: Mapping[str, Any], resources: Mapping[str, Any], *, commit: bool
) -> Act:
    """Return what ends a branch in doubt by hand, as its engine takes it.

    Args:
        one: its global transaction.
        branch: one of its branches.
        resources: live resources by name.
        commit: whether to commit it or to roll it back.
    """
    log, verb = str(branch["log"] or ""), "commit" if commit else "rollback"
    live = resources.get(log.removeprefix(LIVE)) if log.startswith(LIVE) else None
    dialect = getattr(live, "dialect", "")
    of_log = resource_traits(branch["system"] or "").statements
    statements = of_log if live is None else _OF_DATABASES.get(dialect, Statements())
    store, address = Path(log).absolute().parent, ""
    if "{store}" in statements.settling:
        address = f"page-store:{store}" if is_store(store) else f"journal:{Path(log).absolute()}"
    decisions = Path(one.coordinator or "COORDINATOR")
    folder = decisions.parent if decisions.name == LOG_FOLDER else decisions
    fields = forms(Xid(one.format_id, one.gtrid, branch["bqual"] or b"")) | {
        "verb": verb,
        "VERB": verb.upper(),
        "phase": ", false" if commit else "",
        "coordinator": shell_quoted(str(folder)),
        "resource": shell_quoted(branch["resource"] or "NAME"),
        "store": shell_quoted(address).removeprefix("./"),
        "database": json.dumps(str(store)),  # as Java writes it, too
    }
    typed = statements.settling.format(**fields)
    return Act(name_of(branch), statements.where, statements.listing, typed)


def acts_of(one: InDoubt, resources: Mapping[str, Any]) -> list[Act]:
    """Return what is due by hand for each branch in doubt, where a decision is known."""
    return [
        act_of(one, branch, resources, commit=branch["due"] == Resolution.COMMIT)
        for branch in one.branches
        if branch["due"] in _SETTLES
    ]


def runbook(
    report: InDoubtReport, paths: Sequence[str], resources: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Yield the lines of a page in Markdown: what to type for each branch in doubt, and why.

    Args:
        report: what is in doubt.
        paths: the logs that it is about.
        resources: the live resources that were asked, by name.
    """
    count = len(report.transactions) + len(report.unnamed)
    what = counted(count, "transaction")
    moment = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    below = ", ".join(map(printable, paths)) or "live databases"
    yield f"# Runbook: {what} in doubt"
    yield ""
    yield f"Of {below}, made at {moment}. Nothing was changed."
    yield ""
    yield from _wrapped(
        "Copy every log folder away before anything is started. Take the transactions in this "
        "order, the gravest first, and sign each."
    )
    for number, one in enumerate(report.transactions, 1):
        yield from _section(number, one, resources or {})
    for number, unnamed in enumerate(report.unnamed, len(report.transactions) + 1):
        yield from _unnamed(number, unnamed)
    if not report.whole:
        yield from ("", "## CANNOT TELL: not all was seen", "")
        unseen = [f"{name} could not be asked: {why}" for name, why in report.unreachable.items()]
        problems = [f"{one.log}: {one.message}" for one in report.problems]
        for sentence in [*report.unproved, *unseen, *problems]:
            yield from _wrapped(sentence, "- ")
        yield from (f"- Ask again: `{report.command}`" for _ in range(bool(report.command)))
    yield from ("", "## At the end", "")
    names = [f"--resource {shell_quoted(name)}=URL" for name in resources or ()]
    look = " ".join(["tallystick indoubt list", *map(shell_quoted, paths), *names])
    yield f"- `{look}` finds nothing in doubt."
    yield "- The coordinators are started, and their logs tell of no error."
    yield ""
    yield "Released by ____________________ at ____________________"


def _section(number: int, one: InDoubt, resources: Mapping[str, Any]) -> Iterator[str]:
    due = one.resolution.replace("_", " ")
    alarm = f" ({one.alarm})" if one.alarm else ""
    yield from ("", f"## {number}. {one.gtrid.hex()}", "")
    yield f"Due: **{due}**{alarm}. Decision: {one.decision or 'none'}."
    yield from _wrapped(f"Made by {one.made}." if one.made else f"Owner: {one.owner or 'unknown'}.")
    yield from _wrapped(f"Coordinator: {one.coordinator or 'not here'}.")
    yield from ("", *_wrapped(_instruction(one)))
    for branch in one.branches:
        if branch["state"] == "prepared":
            yield from _branch(one, branch, resources)
    yield from ("", "Evidence:", "")
    for reason in one.evidence.split("; "):
        yield from _wrapped(reason, "- ")


def _instruction(one: InDoubt) -> str:
    if one.alarm and one.alarm != LOST_COMMIT:
        return f"{ADVICE[one.alarm]}."
    if one.alarm == LOST_COMMIT:
        return "Commit it by hand now, before its coordinator starts: that start rolls it back."
    return "Its coordinator does this when it starts. Type it only if that cannot be started."


def _branch(one: InDoubt, branch: Mapping[str, Any], resources: Mapping[str, Any]) -> Iterator[str]:
    due, name = branch["due"], printable(name_of(branch))
    if due not in _SETTLES:
        yield from ("", f"### {name}: leave it alone", "")
        yield f"Prepared in {printable(branch['log'] or '?')}."
        return
    act = act_of(one, branch, resources, commit=due == Resolution.COMMIT)
    doubt = "perhaps " if one.alarm in UNPROVED else ""
    yield from ("", f"### {name}: {doubt}{due}", "")
    yield f"Prepared in {printable(branch['log'] or '?')}."
    yield from _typed(act)
    yield from ("", _SIGN)


def _typed(act: Act) -> Iterator[str]:
    if not act.typed:
        yield "What is typed there is not known to tallystick: see the manual of that system."
        return
    yield from _wrapped(f"{act.where}:")
    yield from ("", "```", *map(printable, act.typed.split("\n")), "```")
    if act.listing:
        yield from ("", f"Before and after: `{act.listing}`")


def _unnamed(number: int, unnamed: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", f"## {number}. {printable(unnamed['name'])}", "")
    yield "Due: **ask who prepared it**: its name is no XA id, so no coordinator tells."
    yield f"Prepared in {printable(unnamed['log'])}."
    yield from ("", _SIGN)


def _wrapped(text: str, begin: str = "") -> list[str]:
    """Return lines of a sentence; words that have to be copied whole, as paths, stay whole."""
    return textwrap.wrap(
        printable(text), WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
