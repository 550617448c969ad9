"""What a person reads: the answer first, no fact twice, nothing cut that has to be copied."""

from __future__ import annotations

import gzip
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import tallystick
from tallystick import cli as package
from tallystick.arrow import numba_kernel
from tallystick.cli.look.explain import SHORT
from tallystick.printable import counted
from tests.cli.conftest import Run
from tests.fixtures import fixture_dir
from tests.indoubt.estates import older_file_in_use
from tests.kit import read_in_runs

ANSWERS = ("SAFE AFTER A CRASH", "SAFE", "LOSES", "REFUSES", "CANNOT TELL")
SYSTEMS = ("bitronix", "cloudtran", "derby", "h2", "jboss", "estate")


def texts_of(out: str) -> list[list[str]]:
    """Return the lines about each log."""
    lines = out.splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith(ANSWERS)]
    return [lines[begin:end] for begin, end in pairwise([*starts, len(lines)])]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_text_about_every_fixture_begins_with_its_answer(run: Run, system: str) -> None:
    logs = tallystick.explain(fixture_dir(system)).logs
    texts = texts_of(run("explain", fixture_dir(system)).out)
    assert [text[0].split("  ")[0] for text in texts] == [log.judgement.words for log in logs]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("system", SYSTEMS)
def test_no_fact_stands_twice_in_the_text_about_a_log(run: Run, system: str) -> None:
    for text in texts_of(run("explain", fixture_dir(system)).out):
        facts = [
            fact.strip(" .")
            for line in text[1:]
            for fact in re.split(
                r"^ +(?:Why|damage [^:]+|loss [^:]+|its own engine|the bytes):", line
            )
            if len(fact.strip(" .")) >= SHORT and "  at /" not in line and "evidence:" not in line
            if "more like it" not in line
        ]
        assert len(facts) == len(set(facts)), "\n".join(text)


def test_what_would_make_a_long_log_faster_is_said_in_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba_kernel, "_said", set())
    read_in_runs(monkeypatch)
    monkeypatch.setitem(sys.modules, "numba", None)
    answer = run("explain", fixture_dir("cloudtran") / "all-complete")
    (line,) = answer.err.splitlines()
    assert "10 to 40 times as fast" in line
    assert "all-complete" in answer.out


def test_findings_of_one_kind_are_one_line_with_a_count(run: Run) -> None:
    out = run("explain", fixture_dir("bitronix") / "damaged-hole").out
    assert out.count("loss lost-behind-damage") == 1
    assert "and 6 more like it" in out


@pytest.mark.parametrize("columns", ["80", "20"])
def test_ids_are_whole_on_a_narrow_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    estate = fixture_dir("estate") / "mid-phase-two"
    listed = run("indoubt", "list", "--json", estate).json["transactions"]
    lines = run("indoubt", "list", estate).out.splitlines()
    assert len(listed) > 1
    for one in listed:
        assert any(line.startswith(f"{one['gtrid']}  due: ") for line in lines)


def test_a_path_is_whole_on_a_narrow_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, logs: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert f"    tallystick explain {logs / 'bad'}" in run("triage", logs).out.splitlines()


SPOKEN = ("cli", "indoubt", "reading", "reconcile", *(f"systems/{one}/verdict" for one in SYSTEMS))
"""Folders of the package in which texts for people stand."""
NOUNS = "transaction|decision|commit|record|row|branche|log|table|defect|change|message|page"


def test_a_number_is_said_with_its_noun_in_the_right_form() -> None:
    said = counted(1, "branch", "branches"), counted(0, "row"), counted(1_200, "branch", "branches")
    assert said == ("1 branch", "0 rows", "1,200 branches")
    source = Path(package.__file__).parents[1]
    of_any_number = re.compile(rf"\{{[^{{}}]*\}} ({NOUNS})s\b")
    for path in (path for name in SPOKEN for path in (source / name).rglob("*.py")):
        for line in path.read_text("utf-8").splitlines():
            found = of_any_number.search(line)
            assert found is None or "All {" in line, f"{path}: {line.strip()}"


def test_what_advice_tells_to_type_mends_the_log(run: Run, tmp_path: Path) -> None:
    for part in older_file_in_use(tmp_path / "estate").rglob("part*.tlog.gz"):
        (tmp_path / "log").mkdir(exist_ok=True)
        name = part.stem.replace("part", "btm")
        (tmp_path / "log" / name).write_bytes(gzip.decompress(part.read_bytes()))
    out = run("verify", tmp_path / "log").out
    (line,) = [one for one in out.splitlines() if "tallystick repair" in one]
    typed = line[line.index("repair FOLDER") :].partition(",")[0]
    places = {"FOLDER": tmp_path / "log", "COPY": tmp_path / "copy"}
    assert run(*(places.get(one, one) for one in typed.split())).code == 0
    answer = run("verify", tmp_path / "copy")
    assert (answer.code, "stale-file-in-use" in answer.out) == (0, False)


def test_why_and_headline_are_sentences_that_tell_their_units(run: Run) -> None:
    out = run("explain", fixture_dir("estate") / "mid-phase-two").out
    assert "transactions committed, leave 2 in doubt" in out
    assert "keep undone" not in out
    assert "the rest of the preallocated file was never written" in out
    assert re.search(r"[{(:] ?1 [a-z]+s\b(?! bytes)", out) is None
