"""What `salvage` writes loads into a new database, which shows what the original does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tallystick.rescue import salvage
from tests.interop.derby.real import VERSIONS, random_tables
from tests.interop.h2.test_typed_tables import random_tables as random_h2
from tests.interop.java import classpath, compile_java, run_java
from tests.pipeline.applied import Shown, rows_shown

pytestmark = pytest.mark.interop
HERE = Path(__file__).parent


def _loaded(jar: str, url: str, schema: str, scripts: list[Path], like: Shown, cwd: Path) -> Shown:
    """Load scripts into a new database; what it shows, with columns as ``like`` has them."""
    jars = classpath([jar])
    printed = run_java(
        "Loaded", url, schema, *scripts, classpath=f"{compile_java(HERE)}:{jars}", cwd=cwd,
        options=["-Dderby.stream.error.file=/dev/null"], timeout_s=120,
    )  # fmt: skip
    rows = [line.split("\t", 2) for line in printed.splitlines() if line.startswith("ROW\t")]

    def lines() -> Iterator[str]:
        for name, (heads, _) in like.items():
            yield "\t".join(["TABLE", name, *(f"{column}={kind}" for column, kind in heads)])
            yield from (f"ROW\t{row[2]}" for row in rows if row[1] == name)

    assert {row[1] for row in rows} <= like.keys() | {"LAST_ONE"}
    return rows_shown(lines())


def _loadable(shown: Shown) -> Shown:
    """The rows without values that no script can have."""
    found: Shown = {}
    for name, (heads, rows) in shown.items():
        gone = {at for at, (_, kind) in enumerate(heads) if kind in ("ARRAY", "OTHER")}
        kept = [tuple(None if at in gone else one for at, one in enumerate(row)) for row in rows]
        found[name] = heads, sorted(kept, key=repr)
    return found


@pytest.mark.parametrize("version", ["1.4.200", "1.3.176"])
def test_h2_shows_the_rows_of_the_script(tmp_path: Path, version: str) -> None:
    for at, (path, shown) in enumerate(random_h2(tmp_path, version, range(4)).items()):
        script = tmp_path / f"{at}.sql"
        found = salvage(path, script, "h2-script")
        url = f"jdbc:h2:{tmp_path}/new{at};MV_STORE=FALSE"
        jar = f"com.h2database:h2:{version}"
        loaded = _loaded(jar, url, "PUBLIC", [script], shown, tmp_path)
        assert loaded == _loadable(shown)
        assert not {one for one in found.left if "not known" in one or "damage" in one}


@pytest.mark.parametrize("seed", range(3))
def test_derby_shows_the_rows_that_it_imports(tmp_path: Path, seed: int) -> None:
    shown = random_tables(tmp_path / "db", seed, 100, "halt", version=VERSIONS[0])
    out = tmp_path / "out"
    salvage(tmp_path / "db", out, "derby-import")
    scripts = [out / name for name in ("schema.sql", "import.sql")]
    jar, url = f"org.apache.derby:derby:{VERSIONS[0]}", f"jdbc:derby:{tmp_path}/new;create=true"
    assert _loaded(jar, url, "APP", scripts, shown, out) == shown


def test_h2_shows_the_rows_of_a_database_of_derby(tmp_path: Path) -> None:
    version = "1.4.200"
    shown = random_tables(tmp_path / "db", 1, 100, "halt", version=VERSIONS[0])
    found = salvage(tmp_path / "db", tmp_path / "all.sql", "h2-script")
    url = f"jdbc:h2:{tmp_path}/new;MV_STORE=FALSE"
    jar = f"com.h2database:h2:{version}"
    assert _loaded(jar, url, "APP", [tmp_path / "all.sql"], shown, tmp_path) == shown
    assert not [one for one in found.left if one.startswith("values")]


def test_derby_shows_the_rows_of_a_database_of_h2(tmp_path: Path) -> None:
    """But for those that no type of Derby holds, which are counted."""
    ((path, shown),) = random_h2(tmp_path, "1.4.200", range(3, 4)).items()
    out = tmp_path / "out"
    found = salvage(path, out, "derby-import")
    scripts = [out / name for name in ("schema.sql", "import.sql")]
    jar, url = f"org.apache.derby:derby:{VERSIONS[0]}", f"jdbc:derby:{tmp_path}/new;create=true"
    expected = {
        name: (heads, sorted((_in_derby(row, heads) for row in rows), key=repr))
        for name, (heads, rows) in shown.items()
    }
    assert _loaded(jar, url, "PUBLIC", scripts, shown, out) == expected
    gone = sum(
        one.count(None) - other.count(None)
        for name in shown
        for one, other in zip(expected[name][1], shown[name][1], strict=True)
    )
    left = {what: count for what, count in found.left.items() if what.startswith("values")}
    assert sum(left.values()) == gone


def _in_derby(row: tuple[Any, ...], heads: list[tuple[str, str]]) -> tuple[Any, ...]:
    return tuple(
        None if _is_left(value, kind) else value
        for value, (_, kind) in zip(row, heads, strict=True)
    )


def _is_left(value: Any, kind: str) -> bool:
    if kind in ("ARRAY", "OTHER"):
        return True
    if kind in ("REAL", "DOUBLE", "FLOAT"):
        return value in ("nan", "inf", "-inf")
    return kind in ("DATE", "TIMESTAMP") and not re.match("(?!0000)[0-9]{4}-", value or "2000-")
