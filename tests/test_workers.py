"""How tests are spread: the Spark session in one worker, all else by function, what waits first."""

from __future__ import annotations

from pathlib import Path

from tests.workers import FIRST, SPARK, WITH_SESSION, unit_of

ROOT = Path(__file__).parents[1]

TESTS = """
@pytest.fixture
def tables(spark: SparkSession): ...

@pytest.fixture
def judged(tables): ...

def test_by_itself(spark: SparkSession): ...

class TestTables:
    def test_by_a_fixture(self, judged): ...

def test_without(tmp_path): ...
"""


def test_what_gets_the_session_is_one_unit_and_nothing_else_in_its_file(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(TESTS)
    units = [
        unit_of(tmp_path, f"test_a.py::{name}")
        for name in ("test_by_itself[x]", "TestTables::test_by_a_fixture", "test_without[a::b]")
    ]
    assert units == [SPARK, SPARK, "test_a.py::test_without"]


def test_what_shares_a_server_with_the_session_goes_with_it() -> None:
    assert unit_of(ROOT, f"{WITH_SESSION}::test_without_spark") == SPARK


def test_the_files_that_are_named_are_there() -> None:
    assert [one for one in FIRST if one != SPARK and not (ROOT / one).is_file()] == []
    assert (ROOT / WITH_SESSION).is_file()
