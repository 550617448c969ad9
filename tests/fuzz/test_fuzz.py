"""The fuzzer: it runs and reaches what it promises, finds planted faults, and no others."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import CorruptLogError
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.bitronix.reader import BitronixReading
from tests.fuzz import bundle, minimise, properties
from tests.fuzz.mutate import Mutator
from tests.fuzz.properties import broken
from tests.fuzz.seals import SEALS
from tests.fuzz.seeds import HERE, seeds
from tests.need import need

ROOT = HERE.parents[1]
SYSTEMS = tuple(SEALS)
FOUND = sorted((HERE / "found").glob("*/*.bundle"))
RUNS = 150
"""Mutants of each system in every run of the tests."""
SOAK_S = 600
"""The same in soak, in seconds: an hour for all."""

EVERY_SYSTEM = pytest.mark.parametrize("system", SYSTEMS)


def campaign(system: str, work: Path, *options: str) -> dict[str, int]:
    """Run the fuzzer in a process of its own; return its counters. It must find nothing."""
    answer = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", system, "--work", str(work), *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(("src", os.environ.get("PYTHONPATH", "")))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-2000:]
    problems = sorted((work / system).glob("problems/*.txt"))
    assert not problems, "\n\n".join(path.read_text() for path in problems)
    counters: dict[str, int] = json.loads((work / system / "counters.json").read_text())
    return counters


@pytest.mark.long
@pytest.mark.sampled(1)
@EVERY_SYSTEM
def test_mutants_guided_by_coverage_break_no_property(system: str, tmp_path: Path) -> None:
    need("fuzzer")
    counters = campaign(system, tmp_path, "--runs", str(RUNS), "--seconds", "360")
    assert counters["distinct mutants"] > RUNS // 3
    assert counters["logs"] > RUNS // 4
    assert counters["records"] > 0
    assert counters["opened for writing"] > RUNS // 40


@pytest.mark.soak
@pytest.mark.parametrize("kernels", ["plain", "compiled"])
@EVERY_SYSTEM
def test_mutants_break_no_property_for_an_hour(
    system: str, kernels: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    need("fuzzer")
    options = ["--seconds", str(SOAK_S // 2), "--seed", str(random.SystemRandom().getrandbits(31))]
    options += ["--compiled"] if kernels == "compiled" else []
    counters = campaign(system, tmp_path, *options)
    record_property("figure", f"{system}, {options}: {counters}")


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_a_run_found_stays_mended(path: Path) -> None:
    files = bundle.decode(path.read_bytes())
    assert files
    # On a fresh clone it may be the first to compile.
    assert broken(path.parent.name, files, compiled=True) == {}


# -- that the properties can fail --------------------------------------------------------------


def _raise(error: BaseException) -> Callable[..., Any]:
    def raising(*_: object, **__: object) -> None:
        raise error

    return raising


def _endless(_: BitronixReading) -> Any:
    while True:
        pass


def _writes(reading: BitronixReading) -> Any:
    Path(reading.source.files[0]).write_bytes(b"written")
    return _VERDICT(reading)


def _hogs(reading: BitronixReading) -> Any:
    assert bytearray(b"x") * (300 << 20)
    return _VERDICT(reading)


_VERDICT = BitronixReading.verdict

PLANTED: dict[str, tuple[type, str, Callable[..., Any], str]] = {
    "an error of another tree": (
        BitronixReading, "verdict", _raise(IndexError("planted")), "not documented",
    ),
    "an endless loop": (BitronixReading, "verdict", _endless, "processor time"),
    "memory out of proportion": (BitronixReading, "verdict", _hogs, "MiB of memory"),
    "a write while reading": (BitronixReading, "verdict", _writes, "changed the files"),
    "records that only batches hold": (
        BitronixReading, "records", lambda *_, **__: iter(()), "other rows",
    ),
    "one way that ends with an error": (
        BitronixReading, "batches", _raise(CorruptLogError("planted")), "end with",
    ),
    "an acknowledged item that is not there": (
        DiskJournal, "collect_dangling_records", lambda _: {}, "is lost",
    ),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, replacement, text = PLANTED[fault]
    files = seeds("bitronix")[0]
    assert broken("bitronix", files, compiled=True) == {}
    if replacement is _endless:
        monkeypatch.setattr(properties, "SECONDS", 0.3)
    monkeypatch.setattr(owner, name, replacement)
    found = broken("bitronix", files)
    assert any(text in key for key in found), found


def test_a_found_mutant_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(reading: BitronixReading) -> Any:
        if any(one.gtrid and one.gtrid.endswith(b"\x05") for one in reading.records()):
            raise IndexError("planted")
        return _VERDICT(reading)

    monkeypatch.setattr(BitronixReading, "verdict", planted)
    monkeypatch.setattr(minimise, "SIZES", (4096, 512, 64))
    files = seeds("bitronix")[0]
    small = minimise.minimised("bitronix", files)
    assert broken("bitronix", small)
    assert len(bundle.encode(small)) < len(bundle.encode(files)) * 3 // 4


# -- mutants -----------------------------------------------------------------------------------


@EVERY_SYSTEM
def test_seals_change_nothing_in_a_whole_log(system: str) -> None:
    """So what they compute is what the format asks for."""
    for files in seeds(system)[:2]:
        for name, content in files.items():
            data = bytearray(content)
            SEALS[system](name, data)
            assert data == content, name


@pytest.mark.parametrize("system", [one for one in SYSTEMS if one != "jboss"])
def test_a_mutant_is_sealed(system: str) -> None:
    """Without giving the byte back that was changed. The check of most JBoss records is a size."""
    files = seeds(system)[0]
    sealed_changes = 0
    rng = random.Random(4)
    for _ in range(40):
        name = max(files, key=lambda one: len(files[one].rstrip(b"\0")))
        data = bytearray(files[name])
        data[rng.randrange(len(data.rstrip(b"\0")))] ^= 1 << rng.randrange(8)
        before = bytes(data)
        SEALS[system](name, data)
        sealed_changes += data not in (before, files[name])
    assert sealed_changes > 4


@EVERY_SYSTEM
def test_the_same_seed_gives_the_same_mutant(system: str) -> None:
    pool = seeds(system)
    one, two = (
        [Mutator(system, pool, lambda data, _: data).mutant(pool[0], seed) for seed in range(50)]
        for _ in range(2)
    )
    assert one == two
    assert sum(mutant != pool[0] for mutant in one) > 30


def test_bundles_are_decoded_as_they_were_encoded() -> None:
    files = {"a": b"", "folder/b": bytes(1000)}
    assert bundle.decode(bundle.encode(files)) == files
    for damaged in (b"", b"x", bundle.encode(files)[:-3], bundle.encode({"../a": b""})):
        assert bundle.decode(damaged) is None
