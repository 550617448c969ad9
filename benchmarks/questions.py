"""What questions to a log cost beside reading it: processor time, and the peak of memory.

``python benchmarks/questions.py [SYSTEM ...] [--mib 256] [--ask NAME ...]`` writes a log of each
system by its own writer and asks it, each question in a process of its own that has asked it of a
small log first. ``reader`` is what making the columns that the question needs costs without SQL;
*anonymous* is the peak of memory without the pages of files. ``written`` asks for the rows as
files, in turns in one process: times the columns of the table ``changes``, and times that table in
a file of the same form.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from jboss_scan import generate_messages
from tables_scan import WRITERS
from verdicts import measured, status

import tallystick
from tallystick.investigate.asof import Moment, asof
from tallystick.investigate.diff import diff
from tallystick.investigate.export import export
from tallystick.investigate.rows import FORMS, export_rows, rows
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import find, tasks
from tallystick.pipeline.task import execute
from tallystick.reading.filters import Filter

SMALL_MIB = 3
LOGS = WRITERS | {"messages": generate_messages}
"""Who writes the log of each name."""


def read(table: str, *columns: str) -> Callable[[str], int]:
    """Make columns of a table as SQL does, and count their rows."""

    def ask(path: str) -> int:
        options = SourceOptions((path,), table=table, columns=columns)
        plan = find(options.paths)
        return sum(one.num_rows for task in tasks(options, plan) for one in execute(task, options))

    return ask


def sql(query: str) -> Callable[[str], int]:
    """Ask an open connection in SQL, and count the rows of the answer."""
    return lambda path: len(_connected(path).execute(query).fetchall())


@cache
def _connected(path: str) -> Any:
    return tallystick.sql(path)


def counted(wanted: Callable[[str], Filter]) -> Callable[[str], int]:
    """Count the rows that a filter leaves."""
    return lambda path: sum(1 for _ in rows(path, wanted(path)))


@cache
def _key(path: str) -> str:
    return next(rows(path)).change.key


def _last(path: str) -> int:
    options = SourceOptions((path,), table="changes", columns=("commit_sequence",))
    batches = (
        one for task in tasks(options, find(options.paths)) for one in execute(task, options)
    )
    return max(max(one.column(0).to_pylist(), default=0) for one in batches)


def _middle(path: str) -> int:
    return _last(path) // 2


ASKED: dict[str, Callable[[str], int]] = {
    "connection": lambda path: bool(tallystick.sql(path)),
    "reader: kind": read("records", "kind"),
    "kind": sql("SELECT kind, count(*) FROM records GROUP BY kind"),
    "reader: transaction": read("records", "transaction"),
    "transaction having": sql(
        "SELECT transaction, count(*) AS n FROM records GROUP BY transaction HAVING n > 1000"
    ),
    "reader: time": read("records", "time"),
    "time": sql("SELECT count(*) FROM records WHERE time < 5"),
    "no time": sql("SELECT count(*) FROM records"),
    "reader: changes": read("changes"),
    "changes in SQL": sql("SELECT count(*), max(kind), max(after) FROM changes"),
    "changes of one commit": sql("SELECT * FROM changes WHERE commit_sequence = 5"),
    "rows": counted(lambda _: Filter()),
    "history": counted(lambda path: Filter(key=_key(path))),
    "asof": lambda path: sum(1 for _ in asof(path, Moment(lsn=_middle(path)))),
    "diff": lambda path: sum(one.records for one in diff(path, path)),
}


OPEN = ("kind", "transaction having", "time", "no time", "changes in SQL", "changes of one commit")
"""Questions to a connection that is open already."""


def ask(name: str, small: str, large: str) -> None:
    """Ask both logs and print what the second answer cost."""
    ASKED[name](small)
    if name in OPEN:
        _connected(large)
    _key(large)  # to find one is no part of the question
    before = status("RssAnon")
    answer, used, peak = measured(lambda: ASKED[name](large))
    print(json.dumps({"seconds": used, "answer": answer, "mib": (peak - before) >> 10}))


WRITTEN, TURNS = "written", 3


def written(small: str, large: str) -> None:
    """Print what rows in files cost: the least of some turns, beside the same turns of a table."""
    columns = read("changes")
    with tempfile.TemporaryDirectory(prefix="questions-") as folder:
        target = Path(folder) / "written"
        calls: dict[tuple[str, str], Callable[[str], int]] = {("columns", ""): columns}
        for form in FORMS:
            calls["table", form] = partial(export, form=form, target=target, table="changes")
            calls["rows", form] = partial(export_rows, form=form, target=target)
        for call in calls.values():
            call(small)
        turns = [{one: _seconds(call, large) for one, call in calls.items()} for _ in range(TURNS)]
    costs = {one: min(turn[one] for turn in turns) for one in calls}
    said = [f"columns {costs['columns', '']:.2f} s"]
    for form in FORMS:
        own, bare, table = (
            costs[one] for one in (("rows", form), ("columns", ""), ("table", form))
        )
        said.append(f"{form} {own:.2f} s, {own / bare:.2f} x columns, {own / table:.2f} x table")
    print("; ".join(said))


def _seconds(call: Callable[[str], int], path: str) -> float:
    begin = time.process_time()
    call(path)
    return time.process_time() - begin


def main() -> None:
    """Print a line for each question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("systems", nargs="*", default=["tally", "jboss", "h2", "derby"])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--ask", nargs="*", default=[*ASKED, WRITTEN], choices=[*ASKED, WRITTEN])
    given = parser.parse_args()
    for name in given.systems:
        with tempfile.TemporaryDirectory(prefix="questions-") as folder:
            small, large = (Path(folder) / one for one in ("small", "large"))
            LOGS[name](small, SMALL_MIB)
            LOGS[name](large, given.mib)
            for question in given.ask:
                asked = "written(" if question == WRITTEN else f"ask({question!r}, "
                code = f"import questions; questions.{asked}{str(small)!r}, {str(large)!r})"
                ran = subprocess.run(
                    [sys.executable, "-c", code], capture_output=True, text=True, check=False,
                    cwd=Path(__file__).parent,
                )  # fmt: skip
                said = ran.stdout.strip() or ran.stderr.strip().splitlines()[-1]
                print(f"{name:10}{question:24}{said}", flush=True)


if __name__ == "__main__":
    main()
