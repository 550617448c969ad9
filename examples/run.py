"""The whole pipeline over the example estate: all tables, the report, and a summary.

In: ``examples/estate``, a small shop that is killed in the middle of a sale (``shop.py``), and a
database and a broker that are there whole (``examples/surroundings``); or the paths given as
arguments. Out: ``out/tables``, ``out/report.html`` and, on the terminal, what was found, what is in
doubt, what a restart would do, and what it did for the shop.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path

import shop

from tallystick.cli.answers import ANSWER_STYLES, print_surroundings
from tallystick.cli.output import PrintedTexts, Printer
from tallystick.cli.summary import show_summary
from tallystick.pipeline.runner import Run
from tallystick.pipeline.session import start
from tallystick.reading import explain
from tallystick.reading.results import headline
from tallystick.records import Surroundings
from tallystick.report import write_report

HERE = Path(__file__).parent
OUT = HERE.parent / "out"
SHOP = OUT / "shop"
WHOLE = OUT / "surroundings"


def main(sources: list[str]) -> None:
    """Run everything over ``sources``; without any over the estate and the shop."""
    out = Printer()
    given = bool(sources)
    if not given:
        out.line("0. A sale in a small shop of our own, killed half-way", style="bold")
        shop.sell_and_die(SHOP)
        out.line("  A page store and a journal; the order is taken, the pear is not yet given.")
        sources = [str(HERE / "estate"), str(SHOP)]
    out.line()
    out.line("1. What a restart of each system would do, from its log alone", style="bold")
    for source in sources:
        show_restarts(out, source)
    out.line()
    out.line("2. All logs together, through Spark", style="bold")
    # Over few small logs, to compile Java's code once more and better takes longer than to run it.
    spark = start("local[*]", {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"})
    try:
        summary = Run(sources, str(OUT / "tables"))(spark)
    finally:
        spark.stop()
    show_summary(out, summary, str(OUT / "tables"))
    report = write_report(OUT / "tables", OUT / "report.html")
    if not given:
        out.line()
        out.line("3. The shop opens again", style="bold")
        show_recovery(out, shop.recover(SHOP))
        out.line()
        out.line("4. A database and a broker, judged whole: their logs are sound", style="bold")
        unpack(HERE / "surroundings", WHOLE)
        show_whole(out, WHOLE)
    out.line()
    out.line(f"{3 if given else 5}. Look at it: {report.as_uri()}", style="bold")


def show_recovery(out: Printer, answer: shop.Recovered) -> None:
    """What recovery did, and what is in the stores now."""
    for verb, branches in (
        ("committed", answer.report.committed),
        ("rolled back", answer.report.rolled_back),
    ):
        for resource, xid in branches:
            out.line(f"  Recovery {verb} {xid.gtrid.hex()} in {resource!r}, as the log had it.")
    out.line(f"  {answer.pears} pears, {answer.orders} order, nothing in doubt: both or neither.")


def show_restarts(out: Printer, source: str) -> None:
    """One line per log: what its own recovery would do."""
    answer = explain(source)
    for verdict in answer.logs:
        place = Path(verdict.path).relative_to(source) if verdict.path != source else "."
        words = (f"  {verdict.judgement.words}", ANSWER_STYLES[verdict.judgement.answer])
        out.line(words, f"  {verdict.system}  {place}")
        out.line(f"            {headline(verdict)}")


def unpack(archives: Path, folder: Path) -> None:
    """Unpack every archive of a folder into a new one."""
    shutil.rmtree(folder, ignore_errors=True)
    for archive in sorted(archives.glob("*.tar.xz")):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")


def show_whole(out: Printer, folder: Path) -> None:
    """What a restart of each database and broker would do, and what decides that beside its log."""
    answer = explain(str(folder))
    own = {verdict.path: verdict.log_judgement for verdict in answer.logs}
    for one in answer.databases:
        found, told = one.judgement, PrintedTexts()
        words = (f"  {found.words}", ANSWER_STYLES[found.answer])
        out.line(words, f"  {one.kind} {Path(one.path).relative_to(folder)}: {found.text}")
        told.is_new(found.text)
        print_surroundings(out, Surroundings(one.path, one.kind, one.parts), told)
        alone = {own[log].words: None for log in one.logs}
        out.line(f"  The log alone: {', '.join(alone)}.")


if __name__ == "__main__":
    main(sys.argv[1:])
