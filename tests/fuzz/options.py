"""The command line of a run."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Options:
    """A run.

    Attributes:
        system: whose logs are mutated.
        seconds: time after which it ends.
        runs: mutants after which it ends; 0 for no limit.
        seed: of libFuzzer and the mutators.
        work: folder of the growing corpus, of problems and of counters.
        compiled: kernels run compiled, with bounds checks, and nothing is instrumented: many more
            mutants of the corpus that guided runs have made.
    """

    system: str
    seconds: int
    runs: int
    seed: int
    work: Path
    compiled: bool

    @classmethod
    def parse(cls) -> Self:
        """Return the options of the command line."""
        parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
        parser.add_argument("system")
        parser.add_argument("--seconds", type=int, default=600)
        parser.add_argument("--runs", type=int, default=0)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--work", type=Path, default=Path("out/fuzz"))
        parser.add_argument("--compiled", action="store_true")
        return cls(**vars(parser.parse_args()))
