"""``tallystick pipeline run``: logs to tables, here or on a cluster."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tallystick.cli.addresses import GivenPath, by_name
from tallystick.cli.options import Command, Seconds, as_json
from tallystick.cli.output import Printer, complain, print_json, say
from tallystick.cli.summary import show_summary
from tallystick.pipeline.summary import FAIL_ON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tallystick.pipeline.runner import Run
    from tallystick.pipeline.summary import RunSummary


ALERTS_S = 10.0
"""Seconds between two looks for alerts where no log changes."""


@click.group()
def command() -> None:
    """Build tables from logs with Spark."""


@command.command(cls=Command)
@click.argument("sources", nargs=-1, required=True, metavar="SRC...", type=GivenPath())
@click.option("--out", required=True, metavar="DIR", help="Folder of the tables.")
@click.option("--master", help="Spark master, such as local[*] or spark://host:7077.")
@click.option("--format", "form", default="parquet", show_default=True, help="Any Spark format.")
@click.option("--stream", is_flag=True, help="Keep the tables up to date until interrupted.")
@click.option(
    "--every",
    type=Seconds(positive=True),
    default=2.0,
    show_default=True,
    help="Seconds between looks (--stream).",
)
@click.option(
    "--alert-after",
    type=Seconds(),
    help="Append to the table alerts what is in doubt for longer (--stream).",
)
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Setting of Spark.")
@click.option("--option", multiple=True, metavar="NAME=VALUE", help="Option of the data source.")
@click.option("--resource", multiple=True, metavar="NAME=LOG", help="Log of a resource name.")
@click.option(
    "--fail-on",
    type=click.Choice(FAIL_ON),
    default="damage",
    show_default=True,
    help="Exit with 1 if something as grave was found; the tables are there all the same.",
)
@click.option(
    "--publish", metavar="URL", help="Bring the tables into an object store, all at once."
)
@click.option("--anew", is_flag=True, help="Read everything, whatever the tables hold.")
@as_json
@click.pass_context
def run(
    ctx: click.Context,
    /,
    sources: tuple[str, ...],
    out: str,
    master: str | None,
    form: str,
    stream: bool,
    every: float,
    alert_after: float | None,
    conf: tuple[str, ...],
    option: tuple[str, ...],
    resource: tuple[str, ...],
    fail_on: str,
    publish: str | None,
    anew: bool,
    as_json: bool,
) -> None:
    """Build or advance the tables in DIR from every log below SRC.

    Only what changed since the last run is read. Exit code 1 if damage, loss or a heuristic
    mismatch was found, or what --fail-on says; 2 if there was nothing to read, or if the tables
    could not be published, which --stream tries again in every round.
    """
    # Spark takes a second to import; the help page can do without.
    from tallystick.pipeline.runner import Run

    options = by_name(option, "--option", "VALUE")
    resources = by_name(resource, "--resource", "LOG")
    job = Run(sources, out, form, options, resources, anew, publish, goes_on=stream)
    follow = _Follow(job, every, alert_after) if stream else None
    summary = _build(job, master, by_name(conf, "--conf", "VALUE"), follow)
    if as_json:
        print_json(summary.to_dict())
    else:
        show_summary(Printer(), summary, out)
    if job.unpublished is not None:  # of the last round of a stream
        ctx.exit(complain(str(job.unpublished), 2, publish))
    ctx.exit(int(summary.fails(fail_on)) if summary.logs else summary.exit_code)


@dataclass(slots=True)
class _Follow:
    """Rounds until interrupted, or asked to end, between two rounds: none is broken off."""

    job: Run
    every: float
    alert_after: float | None
    _stopped: threading.Event = field(default_factory=threading.Event)

    def take_signals(self) -> None:
        """End after the round that is under way when a signal comes."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._stopped.set())

    def __call__(self, spark: SparkSession) -> None:
        """Look for alerts whenever something was read, and from time to time without."""
        from tallystick.pipeline.alerting import raise_alerts

        due, failed = 0.0, False
        for read in chain([[]], self.job.follow(spark, self.every, self._stopped)):
            if read:
                say(f"read {', '.join(read)}", err=True)
            failed = self._tell_of_publishing(failed=failed)
            if self.alert_after is not None and (read or time.monotonic() >= due):
                raise_alerts(spark, self.job, self.alert_after)
                due = time.monotonic() + max(self.alert_after, ALERTS_S)

    def _tell_of_publishing(self, *, failed: bool) -> bool:
        """Say once that the tables are not published, and once that they are again."""
        error = self.job.unpublished
        if error is not None and not failed:
            say(f"{error}; every round tries again", err=True)
        if error is None and failed:
            say(f"published to {self.job.publish}", err=True)
        return error is not None


def _build(
    job: Run, master: str | None, conf: dict[str, str], follow: _Follow | None
) -> RunSummary:
    """Run the job in a session of its own, once more after ``follow``."""
    from tallystick.pipeline.session import ended, own_errors, start

    with own_errors(job.out), _bar() as progress:
        progress("starting Spark", 0, 1)
        before = signal.getsignal(signal.SIGINT)
        if follow is not None:
            follow.take_signals()
        spark = start(master, conf)
        with ended(spark):
            # Spark takes Ctrl-C when it starts.
            if follow is not None:
                follow.take_signals()
            elif signal.getsignal(signal.SIGINT) is not before:
                signal.signal(signal.SIGINT, _interrupt)
            summary = job(spark, progress)
            if follow is not None:
                follow(spark)
                summary = job(spark, progress)
            return summary


def _interrupt(_number: int, _frame: object) -> None:
    """End what is under way; py4j, which waits for Java, would print where it was doing so."""
    logging.disable()
    raise KeyboardInterrupt


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a progress bar over the tables, on a terminal only."""
    shown = Progress(
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with shown:
        task = shown.add_task("")
        yield lambda table, done, of: shown.update(
            task, description=table, completed=done, total=of
        )
