"""The whole comparison of what lies beside a log: each kind of damage to each system as often.

In: a seed and a folder. Out: ``cases.jsonl`` in the folder, one case a line, and tables by cell of
system and damage. The systems take turns, a few workloads at a time, so that what has run is even
whenever it ends; typed again with the same folder it goes on. Run
``python -m tests.interop.differential.proof --help``.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.interop.differential.around import UNDAMAGED
from tests.interop.differential.cases import BESIDE, CANNOT_TELL, Case, kinds_of, run, table
from tests.interop.differential.originals import ORIGINALS, OTHERS, Original
from tests.interop.java import be_quick

SYSTEMS = (
    "derby",
    "h2-1.4.200",
    "artemis-broker",
    "narayana",
    "h2-1.3.176-split",
    "derby-10.16",
    "h2-1.3.176",
    "derby-10.10",
    "bitronix",
    "bitronix-3.0",
)
LEAST = 20
"""Cases of each cell."""
WORKLOADS, PER_WORKLOAD = 4, 7
ROUNDS_MAX = 60
"""After so many a kind that seldom finds anything to damage stays below."""
COLUMNS = (
    "system",
    "cases",
    "kinds",
    "smallest cell",
    "wrong",
    "too grave",
    "too little at stake",
    "as a crash leaves it",
    "undamaged",
    "`cannot-tell` of these",
)
_MINUTE = 60


def kept(folder: Path) -> list[Case]:
    """Return the cases that have run."""
    path = folder / "cases.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [Case(**json.loads(line)) for line in lines]


def is_full(name: str, kinds: Iterable[str], cases: Iterable[Case], least: int) -> bool:
    """Return whether every cell of a system has enough cases."""
    found = Counter(case.damage for case in cases if case.system == name)
    return all(found[kind] >= least for kind in (UNDAMAGED, *kinds))


def due(
    systems: Sequence[Original], cases: Sequence[Case], seed: int, least: int
) -> Iterator[tuple[Original, int]]:
    """Yield each system with its next first workload, as ``cases`` grows."""
    for first in itertools.islice(itertools.count(seed, WORKLOADS), ROUNDS_MAX):
        for system in systems:
            done = {case.workload for case in cases if case.system == system.name}
            if done.isdisjoint(range(first, first + WORKLOADS)) and not is_full(
                system.name, kinds_of(system), cases, least
            ):
                yield system, first


def ran(system: Original, first: int, folder: Path, cases: Iterable[Case]) -> list[Case]:
    """Run the workloads from ``first`` on; what was judged wrongly is kept in the folder."""
    work, count = folder / "work", WORKLOADS * PER_WORKLOAD
    shutil.rmtree(work, ignore_errors=True)  # of one that was stopped
    before = (case.damage for case in cases if case.system == system.name)
    found = list(
        run(system, first, count, work, per_workload=PER_WORKLOAD, how=BESIDE, before=before)
    )
    for judged in work.glob("*-judged"):
        judged.replace(folder / judged.name)
    shutil.rmtree(work)
    return found


def summary(cases: Sequence[Case]) -> str:
    """Return by system: cases, cells, what is wrong, and answers over what was not damaged."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    for name in sorted({case.system for case in cases}):
        own = [case for case in cases if case.system == name]
        cells = Counter(case.damage for case in own)
        whole = [case for case in own if case.damage == UNDAMAGED]
        counts = (
            len(own),
            len(cells) - (UNDAMAGED in cells),
            min(cells.values()),
            sum(case.contradicts for case in own),
            sum(case.too_grave for case in own),
            sum(case.too_low for case in own),
            sum(case.crash_alike for case in own),
            len(whole),
            sum(case.answer == CANNOT_TELL for case in whole),
        )
        lines.append(f"| {name} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what is due, print what is wrong as it comes, and the tables at the end."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="of the cases; kept")
    parser.add_argument("--seed", type=int, required=True, help="the first workload's number")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--least", type=int, default=LEAST, help="cases of each cell")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing later")
    arguments = parser.parse_args()
    be_quick()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    seed = folder / "seed"
    if seed.exists() and seed.read_text() != str(arguments.seed):
        parser.error(f"the cases in {folder} are of seed {seed.read_text()}")
    seed.write_text(str(arguments.seed))
    cases = kept(folder)
    systems = [(ORIGINALS | OTHERS)[name] for name in arguments.systems.split(",")]
    end = time.monotonic() + arguments.minutes * _MINUTE
    for system, first in due(systems, cases, arguments.seed, arguments.least):
        if time.monotonic() > end:
            break
        found = ran(system, first, folder, cases)
        with (folder / "cases.jsonl").open("a") as file:
            file.writelines(f"{json.dumps(dataclasses.asdict(case))}\n" for case in found)
        cases += found
        for case in found:
            if case.is_wrong:
                sys.stdout.write(f"--seed {first} {case} | at stake {case.stake}\n")
                sys.stdout.flush()
    sys.stdout.write(f"seed {arguments.seed}\n\n{summary(cases)}\n\n{table(cases)}\n")


if __name__ == "__main__":
    main()
