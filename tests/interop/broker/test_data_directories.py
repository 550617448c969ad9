"""What a real broker keeps at a start is what its data directory is said to hold."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tallystick
from tallystick.records import Answer, Judgement
from tests.interop.broker.test_relay import JARS
from tests.interop.java import classpath, compile_java, run_java

pytestmark = pytest.mark.interop


def _path() -> str:
    jars = classpath(JARS)
    return f"{jars}:{compile_java(Path(__file__).parent, jars)}"


def answer(data: Path) -> Judgement:
    (broker,) = tallystick.explain(data).databases
    assert broker.kind == "broker"
    return broker.judgement


def kept(data: Path) -> int:
    """How many messages wait in all queues after a start with a copy."""
    copy = Path(shutil.copytree(data, data.parent / "started"))
    printed = run_java("Counts", copy, classpath=_path(), timeout_s=120)
    shutil.rmtree(copy)
    return sum(int(line.split()[2]) for line in printed.splitlines() if line.startswith("COUNT "))


@pytest.fixture(scope="module", params=["halt", "stop"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker that was halted, or stopped in order."""
    folder = tmp_path_factory.mktemp("broker") / "data"
    run_java("Messages", folder, 3, 120, request.param, classpath=_path(), timeout_s=120)
    return folder


def test_a_whole_one_is_safe(whole: Path) -> None:
    assert answer(whole).answer is Answer.SAFE
    assert kept(whole) > 50


def _one_large(data: Path) -> None:
    min((data / "large").glob("*.msg")).unlink()


@pytest.mark.parametrize(
    ("change", "drops"),
    [(lambda data: shutil.rmtree(data / "bindings"), True), (_one_large, False)],
)
def test_what_a_start_does_not_keep_is_counted(
    change: Callable[[Path], None], drops: bool, whole: Path, tmp_path: Path
) -> None:
    """A large message without its file is delivered, empty."""
    before = kept(whole)
    data = Path(shutil.copytree(whole, tmp_path / "data"))
    change(data)
    found = answer(data)
    assert found.answer is Answer.LOSES
    assert found.at_stake.rows == (before if drops else 1)
    assert kept(data) == (0 if drops else before)


def test_a_start_whose_settings_name_a_database_keeps_nothing_of_the_files(
    whole: Path, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(whole, tmp_path / "data"))
    store = "<store><database-store></database-store></store>"
    (data / "broker.xml").write_text(f"<configuration><core>{store}</core></configuration>")
    found = answer(data)
    assert (found.answer, found.reason) == (Answer.CANNOT_TELL, "beside-the-log")
    url = "jdbc:derby:memory:broker;create=true"
    jars = f"{_path()}:{classpath(['org.apache.derby:derby:10.14.2.0'])}"
    printed = run_java("Counts", data, url, classpath=jars, timeout_s=120)
    assert printed.splitlines() == ["COUNT orders 0", "COUNT left 0", "COUNT right 0"]
