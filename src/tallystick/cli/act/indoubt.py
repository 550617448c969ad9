"""``tallystick indoubt``: branches in doubt, listed, explained, settled by hand."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tallystick.cli.addresses import GivenPath, by_name, require_database
from tallystick.cli.answers import print_problems
from tallystick.cli.options import Command, as_json, read_options, reading_options
from tallystick.cli.output import Printer, Unbroken, print_json, say
from tallystick.errors import TransactionUsageError
from tallystick.indoubt.listing import LIVE, InDoubt, InDoubtReport, list_in_doubt
from tallystick.indoubt.runbook import act_of, name_of
from tallystick.indoubt.settle import lacking_last_resources, open_store, refuse, settle
from tallystick.printable import shell_words
from tallystick.reading.results import reads_nothing
from tallystick.reconcile.alarms import ADVICE, LOST_COMMIT, UNPROVED
from tallystick.reconcile.decision_table import Decision
from tallystick.roles.coordinator_files import NODE_FILE, RESOURCES
from tallystick.services.transactions.coordinator_dir import check_coordinator_dir
from tallystick.services.transactions.resource import Resource
from tallystick.services.transactions.resources import adapt
from tallystick.storage.local import LOCAL

_STORES = ("page-store:", "journal:")
OPTION = "--resource"

paths_argument = click.argument("paths", nargs=-1, type=GivenPath())  # --resource may do
resource_option = click.option(
    OPTION,
    "resources",
    multiple=True,
    metavar="NAME=URL",
    help="A live database under its unique name; may be repeated. 'settle' takes page-store:PATH"
    " and journal:PATH, too.",
)


def opened(
    ctx: click.Context, resources: tuple[str, ...], *, writing: bool = False
) -> dict[str, Resource]:
    """Return the resources that are named on the command line, open until the command ends."""
    named: dict[str, Resource] = {}
    closing = ctx.with_resource(ExitStack())
    for name, url in by_name(resources, OPTION).items():
        if url.startswith(_STORES) and not writing:
            message = f"opening {url} would write: give its path as a log instead"
            raise click.BadParameter(message, param_hint=OPTION)
        require_database(name, url, OPTION)
        store = open_store(name, url)
        if store is not None:
            closing.enter_context(store)
        named[name] = adapt(name, url if store is None else store)
        closing.callback(named[name].close)
    return named


def gather(
    ctx: click.Context, paths: tuple[str, ...], resources: tuple[str, ...], options: Any
) -> InDoubtReport:
    """Return what is in doubt in logs and resources. Raises `click.UsageError` without any."""
    if not paths and not resources:
        raise click.UsageError("give paths of logs, or --resource, or both")
    return list_in_doubt(paths, opened(ctx, resources), options=read_options(**options))


@click.group()
def command() -> None:
    """Branches in doubt over logs and live databases: list, explain, settle.

    PATHS are logs of any system, or the directory of a transaction manager.
    """


@command.command(cls=Command, name="list")
@paths_argument
@resource_option
@as_json
@reading_options
@click.pass_context
def list_(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    resources: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """List every global transaction in doubt and what is due.

    Exit code 1 if there is one, or if it cannot be told whether there is; 2 if there is no log.
    """
    report = gather(ctx, paths, resources, options)
    if as_json:
        print_json(report.to_dict())
    else:
        _print_list(report)
        # An address of a database may have a password in it: it is not printed again.
        if report.transactions and not report.command and not resources:
            command = f"    tallystick runbook {shell_words(paths)}"
            Printer().line(Unbroken(command), style="bold")
    ctx.exit(exit_code(report))


def exit_code(report: InDoubtReport) -> int:
    """Return 0 where nothing is in doubt, 1 where something is or may be, 2 if nothing was read."""
    if reads_nothing(report.looked_at or report.unproved, report.problems):
        return 2
    return int(report.found or not report.whole)


def _print_list(report: InDoubtReport) -> None:
    out = Printer()
    # The gravest is the first of them; at a terminal it comes last, where it stays in sight.
    for one in report.transactions if out.rows is None else reversed(report.transactions):
        out.line((one.gtrid.hex(), "bold"), f"  due: {_due(one)}")
        out.line(f"    {_about(one)}")
    for branch in report.unnamed:
        out.line((branch["name"], "bold"), "  due: ask who prepared it")
        out.line(f"    no XA id, so no coordinator tells; in doubt on: {branch['log']}")
    for alarm in sorted({one.alarm for one in report.transactions if one.alarm}):
        out.line(f"{alarm}: {ADVICE[alarm]}")
    if not report.whole:
        what = "Nothing" if not report.found else "Nothing else"
        out.line(f"CANNOT TELL  {what} in doubt was found, but not all was seen.", style="bold")
    elif not report.found:
        out.line("Nothing is in doubt.")
    _print_unseen(out, report)


def _print_unseen(out: Printer, report: InDoubtReport) -> None:
    for sentence in report.unproved:
        out.line(sentence)
    for name, why in report.unreachable.items():
        out.line(f"Could not ask {name}: {why}")
    print_problems(out, report.problems, [])
    if report.command:
        out.line(Unbroken(f"    {report.command}"), style="bold")


def _due(one: InDoubt) -> str:
    """Return what is due, and never as a plain word where the judgement warns of it."""
    due = one.resolution.replace("_", " ")
    if one.alarm in UNPROVED:
        return f"doubtful: {due}?"
    return f"{due} ({one.alarm})" if one.alarm == LOST_COMMIT else due


def _about(one: InDoubt) -> str:
    branches = ", ".join(name_of(b) for b in one.branches if b["state"] == "prepared") or "none"
    age = "" if one.age_seconds is None else f"; {one.age_seconds:.0f} s old"
    decision = one.decision or "none"
    return f"decision: {decision}; owner: {one.owner or '?'}; in doubt on: {branches}{age}"


@command.command(cls=Command)
@click.argument("gtrid")
@paths_argument
@resource_option
@as_json
@reading_options
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    gtrid: str,
    paths: tuple[str, ...],
    resources: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Say of one global id where each branch stands, what is due, and by which evidence.

    GTRID is its beginning or the whole, in any spelling. Exit code 2 if it is not known here.
    """
    report = gather(ctx, paths, resources, options)
    found = _found(report, gtrid)
    waiting = [one for one in found if one in report.transactions]
    if as_json:
        print_json([one.to_dict() for one in found])
    else:
        out = Printer()
        if not waiting:
            _print_absence(out, found[0].gtrid.hex(), report)
        for one in found:
            print_transaction(out, one)
    ctx.exit(1 if waiting else exit_code(replace(report, transactions=[], unnamed=[])))


def _found(report: InDoubtReport, gtrid: str) -> list[InDoubt]:
    """Return the global transaction that is meant; leave with 2 where none can be told."""
    try:
        return report.find(gtrid)
    except TransactionUsageError as error:
        if report.whole:
            raise click.BadParameter(str(error), param_hint="GTRID") from error
        out = Printer()
        out.line(f"CANNOT TELL  Not all was seen, and {error}", style="bold")
        _print_unseen(out, report)
        click.get_current_context().exit(2)


def _print_absence(out: Printer, gtrid: str, report: InDoubtReport) -> None:
    if report.whole:
        out.line(f"{gtrid} is not in doubt here.")
    else:
        out.line(f"CANNOT TELL  {gtrid} was not found in doubt, but not all was seen.")
        _print_unseen(out, report)


def print_transaction(out: Printer, one: InDoubt) -> None:
    """Print where each branch of a global transaction stands, what is due, and the evidence."""
    made = f"made by {one.made}" if one.made else f"of {one.owner or '?'}"
    out.line((one.gtrid.hex(), "bold"), f", format {one.format_id}, {made}")
    out.line(f"  coordinator: {one.coordinator or 'not here'}; decision: {one.decision or 'none'}")
    for branch in one.branches:
        doubt = "perhaps " if one.alarm in UNPROVED else ""
        due = f", due: {doubt}{branch['due']}" if branch["due"] else ""
        out.line(f"  {name_of(branch)}: {branch['state'].replace('_', ' ')}{due}")
    out.line(f"  due: {_due(one)}", style="bold")
    if one.alarm:
        out.line(f"  {one.alarm}: {ADVICE[one.alarm]}")
    if one.age_seconds is not None:
        out.line(f"  age: {one.age_seconds:,.0f} s")
    for reason in one.evidence.split("; "):
        out.line(f"    {reason}", style="dim")


@command.command(cls=Command, name="settle")
@click.argument("coordinator", type=GivenPath(exists=True))
@click.argument("gtrid")
@resource_option
@click.option("--commit", is_flag=True, help="Commit its branches.")
@click.option("--rollback", is_flag=True, help="Roll its branches back.")
@click.option("--forget", is_flag=True, help="A heuristic outcome was repaired.")
@click.option("--force", is_flag=True, help="Even against the decision in the log.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Look, and say what would be typed; write nothing.")
@click.pass_context
def settle_(
    ctx: click.Context,
    coordinator: str,
    gtrid: str,
    resources: tuple[str, ...],
    *,
    commit: bool,
    rollback: bool,
    forget: bool,
    force: bool,
    yes: bool,
    dry_run: bool,
) -> None:
    """Settle one global id by hand, with the directory of its COORDINATOR, which must be down.

    It looks first, without writing: branches, decision, age, evidence, and what will be typed
    where. Then it asks. Of other systems 'tallystick runbook PATH' prints what to type.
    """
    outcomes = {"commit": commit, "rollback": rollback, "forget": forget}
    wanted = [outcome for outcome, said in outcomes.items() if said]
    if len(wanted) != 1:
        raise click.UsageError("say one of --commit, --rollback and --forget")
    check_coordinator_dir(coordinator)
    live = opened(ctx, tuple(one for one in resources if not _is_store(one)))
    stores = [one.split(":", 1)[1] for one in resources if _is_store(one)]
    report = list_in_doubt([coordinator, *stores], live)
    (one, *_) = _found(report, gtrid)
    if not (force or forget):
        node = (Path(coordinator) / NODE_FILE).read_text("ascii").strip()
        decided = one.decision == Decision.COMMIT
        lacking = lacking_last_resources(RESOURCES.read(LOCAL, coordinator), live)
        refuse(one.gtrid, node, commit=commit, decided=decided, heuristic=False, lacking=lacking)
    if dry_run or not yes:
        _print_look(one, report, live, wanted[0])
    if dry_run:
        ctx.exit()
    if not yes:
        click.confirm(f"{wanted[0]} {one.gtrid.hex()}?", abort=True, err=True)
    named = opened(ctx, resources, writing=True)
    done = settle(coordinator, named, one.gtrid, commit=None if forget else commit, force=force)
    for line in done:
        say(line)
    ctx.exit(1 if any(": failed" in line for line in done) else 0)


def _is_store(resource: str) -> bool:
    return resource.partition("=")[2].startswith(_STORES)


def _print_look(
    one: InDoubt, report: InDoubtReport, live: dict[str, Resource], outcome: str
) -> None:
    """Print where a global transaction stands, and what settling it does, and where."""
    out = Printer()
    print_transaction(out, one)
    if not report.whole:
        out.line("CANNOT TELL  Not all was seen:", style="bold")
        _print_unseen(out, report)
    out.line("  what will be done:")
    if outcome == "forget":
        out.line("    in the coordinator's log: the heuristic outcome is settled", style="bold")
        return
    if outcome == "commit" and one.decision != Decision.COMMIT:
        out.line("    in the coordinator's log: the decision to commit", style="bold")
    prepared = [branch for branch in one.branches if branch["state"] == "prepared"]
    if not prepared:
        out.line("    in the resources: nothing, as no branch of it is seen prepared")
    for branch in prepared:
        act = act_of(one, branch, live, commit=outcome == "commit")
        in_database = (branch["log"] or "").startswith(LIVE) and act.typed
        typed = in_database or f"{outcome} of this branch"
        where = act.branch.removeprefix(LIVE)
        out.line(f"    in {where}: ", Unbroken(typed), style="bold")
