"""One run of the fuzzer over one system: libFuzzer's loop, counters, and problems kept as files."""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import pkgutil
import random
import re
import resource
import shutil
import sys
import time
import traceback
from typing import Any

import atheris

from tests.fuzz import bundle
from tests.fuzz.options import Options

ADDRESS_SPACE = 6 << 30
"""Bytes that the process may map: an allocation by a hostile length fails instead of swapping."""
CHOSEN_OF = 3
"""Logs of which the smallest is mutated: so small ones are tried more often, and large ones too."""
TURNS = 4
"""Tries to make a mutant that differs and is not too large."""
KEPT_EVERY = 50
"""Mutants after which the counters are kept: libFuzzer ends the process without a word."""
EVERY_S = 30.0
"""Time between two lines of counters."""


def run(options: Options) -> int:
    """Fuzz until the limit; return the exit status: 1 if a property did not hold."""
    if options.compiled:  # libFuzzer ends where nothing is instrumented
        atheris.instrument_func(bundle.decode)
    else:
        _instrumented(options.system)
    campaign = Campaign(options)
    corpus = options.work / options.system / ("compiled" if options.compiled else "corpus")
    if options.compiled:
        shutil.rmtree(corpus, ignore_errors=True)
    corpus.mkdir(parents=True, exist_ok=True)
    for files in campaign.seeds[:1] if options.compiled else campaign.seeds:
        data = bundle.encode(files)
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
    arguments = [
        sys.argv[0],
        str(corpus),
        f"-seed={options.seed}",
        f"-max_total_time={options.seconds}",
        "-max_len=262144",
        "-len_control=0",
        "-timeout=300",
        "-rss_limit_mb=4096",
        "-print_final_stats=0",
        "-verbosity=0",
        "-reload=0",
        f"-artifact_prefix={corpus.parent}/",
    ]
    if options.runs:
        arguments.append(f"-runs={options.runs + len(list(corpus.iterdir()))}")
    atheris.Setup(
        arguments,
        campaign.one,
        custom_mutator=campaign.mutate,
        **({} if options.compiled else {"custom_crossover": campaign.cross}),
    )
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    atheris.Fuzz()  # does not return: libFuzzer ends the process after its last mutant
    return 0


def _instrumented(system: str) -> None:
    """Import everything under test with coverage; what it stands on is imported plainly before."""
    import numba  # noqa: F401
    import pyarrow  # noqa: F401

    package = f"tallystick.systems.{system}"
    with atheris.instrument_imports(include=[package, "tallystick.reading"]):
        import tallystick.reading.survey  # noqa: F401

        module = importlib.import_module(package)
        for one in pkgutil.walk_packages(module.__path__, f"{package}."):
            importlib.import_module(one.name)


class Campaign:
    """The callbacks of libFuzzer, and what they have seen."""

    def __init__(self, options: Options) -> None:
        from tests.fuzz.mutate import Mutator
        from tests.fuzz.properties import Checker
        from tests.fuzz.seeds import seeds

        self.options = options
        self._home = options.work / options.system
        self.seeds = list(seeds(options.system))
        if options.compiled:
            kept = sorted((self._home / "corpus").glob("*"))
            self.seeds += filter(None, (bundle.decode(path.read_bytes()) for path in kept))
        self._mutator = Mutator(options.system, self.seeds, _piece)
        self._folder = self._home / "mutant"
        self._empty()
        self._checker = Checker(options.system, self._folder, compiled=options.compiled)
        self._seen_path = self._home / "seen"
        self._seen: set[bytes] = set()
        self._started = {hashlib.sha1(bundle.encode(one)).digest()[:8] for one in self.seeds}
        self._keys: dict[str, int] = {}
        self._next_line = time.monotonic() + EVERY_S
        self._new: list[bytes] = []
        self._tried = 0

    def one(self, data: bytes) -> int:
        """Check one mutant. Returns -1 for bytes that are no bundle, which libFuzzer drops."""
        from tests.fuzz.properties import BrokenPropertyError

        files = bundle.decode(data)
        if files is None:
            return -1
        digest = hashlib.sha1(data).digest()[:8]
        if not self._seen and self._seen_path.exists():
            raw = self._seen_path.read_bytes()
            self._seen = {raw[at : at + 8] for at in range(0, len(raw), 8)}
        self._tried += 1
        if digest not in self._seen and digest not in self._started:
            self._seen.add(digest)
            self._new.append(digest)
        try:
            self._checker.check(files)
        except BrokenPropertyError as problem:
            self._keep(problem, data)
        if not self._tried % KEPT_EVERY:
            self._report()
        return 0

    def mutate(self, data: bytes, max_size: int, seed: int) -> bytes:
        """Return a mutant, packed; the input where it does not fit."""
        chosen = min(random.Random(seed).choices(self.seeds, k=CHOSEN_OF), key=_size)
        # Where nothing is instrumented, what libFuzzer chooses means nothing.
        files = chosen if self.options.compiled else bundle.decode(data) or chosen
        for turn in range(TURNS):
            made = bundle.encode(self._mutator.mutant(files, seed + turn))
            if made != data and len(made) <= max_size:
                return made
        return data

    def cross(self, one: bytes, other: bytes, max_size: int, seed: int) -> bytes:
        """Return a log made of two, packed."""
        left, right = bundle.decode(one), bundle.decode(other)
        if left is None or right is None:
            return one
        made = bundle.encode(self._mutator.splice(left, right, seed))
        return made if len(made) <= max_size else one

    def _keep(self, problem: Any, data: bytes) -> None:
        self._checker.counters.add("problems")
        known = self._keys.get(problem.key)
        if known is not None and len(data) >= known:
            return
        self._keys[problem.key] = len(data)
        place = self._home / "problems"
        place.mkdir(exist_ok=True)
        name = re.sub(r"[^A-Za-z0-9]+", "-", problem.key)[:120]
        (place / f"{name}.bundle").write_bytes(data)
        cause = problem.__cause__ or problem
        (place / f"{name}.txt").write_text("".join(traceback.format_exception(cause)))
        if known is None:
            _say(f"{self.options.system}: PROBLEM {problem.key}")

    def _empty(self) -> None:
        """Remove what mutants left."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def _report(self) -> None:
        """Keep the counters, and which mutants were tried; print them now and then."""
        self._empty()
        with self._seen_path.open("ab") as file:
            file.write(b"".join(self._new))
        self._new = []
        figures = {"distinct mutants": len(self._seen), "tried now": self._tried}
        figures |= dict(sorted(self._checker.counters.reached.items()))
        line = ", ".join(f"{count} {what}" for what, count in figures.items())
        (self._home / "counters.json").write_text(json.dumps(figures))
        if time.monotonic() > self._next_line:
            self._next_line = time.monotonic() + EVERY_S
            _say(f"{self.options.system}: {line}")


def _piece(data: bytes, size: int) -> bytes:
    """Return libFuzzer's mutation; looked up late, as `atheris.Fuzz` puts the function there."""
    mutated: bytes = atheris.Mutate(data, size)
    return mutated


def _size(files: bundle.Bundle) -> int:
    return sum(map(len, files.values()))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
