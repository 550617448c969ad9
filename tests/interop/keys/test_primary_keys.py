"""Primary keys of tables of the real engines, made, changed and dropped: those that they tell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tallystick.pipeline.planning import find
from tallystick.systems.protocol import Catalogued, ReadOptions
from tallystick.systems.registry import system
from tests.interop.java import classpath, compile_java, run_java

ENGINES = {
    "h2-1.3.176": ["com.h2database:h2:1.3.176"],
    "h2-1.4.200": ["com.h2database:h2:1.4.200"],
    "derby-10.14": ["org.apache.derby:derby:10.14.2.0"],
    "derby-10.16": ["org.apache.derby:derby:10.16.1.1", "org.apache.derby:derbytools:10.16.1.1"],
}

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("engine", ENGINES)
def test_primary_keys_are_those_that_the_engine_tells(tmp_path: Path, engine: str) -> None:
    place = tmp_path / "db"
    derby = engine.startswith("derby")
    urls = [f"jdbc:derby:{place};create=true", "derby"]
    urls = urls if derby else [f"jdbc:h2:{place};MV_STORE=FALSE;WRITE_DELAY=0"]
    jars = os.pathsep.join([classpath(ENGINES[engine]), str(compile_java(Path(__file__).parent))])
    options = ["-Dderby.stream.error.file=/dev/null"] if derby else []
    told: dict[str, dict[int, str]] = {}
    for line in run_java("KeyTables", *urls, classpath=jars, options=options).splitlines():
        word, *values = line.split("\t")
        if word == "TABLE":
            keys = told[values[0]] = {}
        else:
            keys[int(values[0])] = values[1]
    assert len(told) == 8
    assert keys_of(place if derby else Path(f"{place}.h2.db")) == {
        name: tuple(keys[at] for at in sorted(keys)) for name, keys in told.items()
    }


def keys_of(path: Path) -> dict[str, tuple[str, ...]]:
    """The primary keys of the tables of a database, as its log tells them."""
    (source,) = find((str(path),)).logs
    reading = system(source.system).read(source, ReadOptions())
    assert isinstance(reading, Catalogued)
    found = {one.name: one.key for one in reading.collections()}
    return {name: key for name, key in found.items() if not name.startswith("INFORMATION_SCHEMA")}
