"""Change the layouts and decision tables one place at a time: what do their tests let live?

Usage: python scripts/mutants.py [--sample COUNT [--seed NUMBER]] [PATTERN...] of names. Out: the
mutants that live, and for each layout how many were tried and noticed. What is changed stands in
[tool.mutmut] of pyproject.toml. One process, at the lowest priority; without a sample a run that is
ended goes on at the next. mutmut stands in .mutmut, beside the packages of .venv, which are pinned
and have only what the project itself needs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ("mutmut==3.8.1", "libcst==1.9.0", "setproctitle==1.3.8")
PLACE = ROOT / ".mutmut"
LOG = ROOT / "mutants/output.txt"
NOTICED = {"killed", "timeout", "segfault"}


def install() -> None:
    """Install mutmut, where it is not."""
    mark = PLACE / f".{PACKAGES[0]}"
    if not mark.exists():
        shutil.rmtree(PLACE, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--target", PLACE, *PACKAGES], check=True)
        mark.touch()


def layout(mutant: str) -> str:
    """Return the layout that a mutant is of, or the module of a decision table.

    >>> layout("tallystick.systems.h2.format.values.types.x_read__mutmut_1")
    'h2'
    >>> layout("tallystick.reconcile.decision_table.x_decide__mutmut_2")
    'decision_table'
    """
    place, of_a_system, _ = mutant.partition(".format.")
    return place.rpartition(".")[2] if of_a_system else mutant.split(".")[-2]


def sample(mutants: Iterable[str], count: int, seed: int) -> set[str]:
    """Choose so many mutants of each layout: the same ones for the same seed."""
    of_layout = defaultdict(list)
    for mutant in sorted(mutants):
        of_layout[layout(mutant)].append(mutant)
    chosen: set[str] = set()
    for one in of_layout.values():
        chosen.update(random.Random(seed).sample(one, min(count, len(one))))
    return chosen


def report(outcomes: Iterable[tuple[str, str]]) -> None:
    """Print which mutants live, by name and outcome, and the score of each layout."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mutant, outcome in sorted(outcomes):
        counts[layout(mutant)][outcome] += 1
        if outcome not in NOTICED:
            print(f"  {mutant}: {outcome}")
    for name, of_layout in counts.items():
        noticed = sum(of_layout[outcome] for outcome in NOTICED)
        print(f"{name}: {of_layout.total()} tried, {noticed} noticed", end=", ")
        print(f"{of_layout['no tests']} without a test")


def main(arguments: Sequence[str]) -> None:
    """Try mutants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    parser.add_argument("--sample", type=int, metavar="COUNT", help="so many of each layout")
    parser.add_argument("--seed", type=int, default=date.today().toordinal(), metavar="NUMBER")
    options = parser.parse_args(arguments)
    os.chdir(ROOT)
    os.nice(19)
    install()
    sys.path.append(str(PLACE))
    import mutmut.__main__ as mutmut
    from mutmut.stats import status_by_exit_code

    collect = mutmut.collect_source_file_mutation_data
    tried: list[tuple[Any, str, int | None]] = []

    def collect_sample(**keywords: Any) -> Any:
        mutants, files = collect(**keywords)
        if options.sample is not None:
            chosen = sample((name for _, name, _ in mutants), options.sample, options.seed)
            mutants = [one for one in mutants if one[1] in chosen]
        tried[:] = mutants
        return mutants, files

    mutmut.collect_source_file_mutation_data = collect_sample
    if options.sample is not None:
        print(f"mutants: --sample {options.sample} --seed {options.seed}", flush=True)
    LOG.parent.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        if not sys.stdout.isatty():  # its wheel turns some thousand times
            out = os.dup(1)
            os.dup2(stack.enter_context(LOG.open("w")).fileno(), 1)
            stack.callback(os.dup2, out, 1)
        # It takes a mutant again only where a pattern names it.
        patterns = options.patterns or (["*"] if options.sample is not None else [])
        mutmut.run.callback(mutant_names=patterns, max_children=1)
    print("mutants: what tests let live (mutmut show NAME has the change):")
    ended = ((name, file.exit_code_by_key[name]) for file, name, _ in tried)
    report((name, status_by_exit_code[code]) for name, code in ended if code is not None)


if __name__ == "__main__":
    main(sys.argv[1:])
