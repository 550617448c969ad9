"""Random tables of the real H2 of many releases: the typed feed, applied, is what SELECT shows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.interop.java import classpath, compile_java, run_java
from tests.pipeline.applied import Shown, applied, histories, rows_shown
from tests.sweeps import IN_TURNS
from tests.systems.h2.kit import reading_of

VERSIONS = ("1.3.176", "1.4.196", "1.4.197", "1.4.198", "1.4.199", "1.4.200")
LONG = dict.fromkeys(VERSIONS, 30) | {"1.4.200": 90}
"""Databases of a long round: the newest alone has JSON and TIME WITH TIME ZONE, 20 columns each."""
AT_ONCE = 10
"""Databases that one process makes."""
ROUNDS = [
    *(pytest.param(one, 3, id=f"{one}-short", marks=pytest.mark.interop) for one in VERSIONS),
    *(pytest.param(*one, id=f"{one[0]}-long", marks=IN_TURNS) for one in LONG.items()),
]


def random_tables(folder: Path, version: str, seeds: range) -> dict[Path, Shown]:
    """Change tables at random (see RandomH2Tables.java); what SELECT shows, by database."""
    jars = classpath([f"com.h2database:h2:{version}"])
    classes = compile_java(Path(__file__).parent / "tables")
    given = [str(one) for seed in seeds for one in (folder / f"db{seed}", seed)]
    printed = run_java("RandomH2Tables", *given, classpath=f"{classes}:{jars}", timeout_s=300)
    found: dict[Path, list[str]] = {}
    for line in printed.splitlines():
        word, _, path = line.partition("\t")
        if word == "DATABASE":
            lines = found[Path(f"{path}.h2.db")] = []
        else:
            lines.append(line)
    return {path: rows_shown(lines) for path, lines in found.items()}


def _rows_agree(folder: Path, version: str, seeds: range) -> Counter[str]:
    """Compare all tables; count databases, tables and rows."""
    counts: Counter[str] = Counter()
    for path, shown in random_tables(folder, version, seeds).items():
        counts["databases"] += 1
        names = {one.name for one in reading_of(path).collections()}
        assert {one for one in names if one.startswith("PUBLIC.")} == {
            f"PUBLIC.{name}" for name in shown
        }, path
        feeds = histories(path, [f"PUBLIC.{name}" for name in shown])
        for (name, (heads, rows)), found in zip(shown.items(), feeds, strict=True):
            counts["tables"] += 1
            counts["rows"] += len(rows)
            assert applied(found, heads) == rows, (path, name, heads)
    return counts


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("version", "count"), ROUNDS)
def test_the_typed_feed_applied_is_what_select_shows(
    tmp_path: Path, version: str, count: int
) -> None:
    counts: Counter[str] = Counter()
    for first in range(0, count, AT_ONCE):
        counts += _rows_agree(tmp_path, version, range(first, min(first + AT_ONCE, count)))
    assert counts["databases"] == count
    assert counts["rows"] > count
