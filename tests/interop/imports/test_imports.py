"""The real Artemis imports what `salvage` writes of a journal, and has the same messages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tallystick.rescue import salvage
from tallystick.systems.jboss.format.pages import PagedMessage, messages_of
from tests.fixtures import fixture_dir
from tests.interop.java import classpath, compile_java, run_java

pytestmark = pytest.mark.interop
JARS = ["org.apache.activemq:artemis-cli:2.40.0"]
HERE = Path(__file__).parent
QUEUES = ("orders", "left", "right")


def java(program: str, *arguments: object) -> list[list[str]]:
    """Fields of the lines that a program prints."""
    jars = classpath(JARS)
    brokers = f"{compile_java(HERE.parent / 'broker', jars)}:{jars}"
    path = f"{compile_java(HERE, brokers)}:{brokers}"
    printed = run_java(program, *arguments, classpath=path, timeout_s=120)
    return [line.split("\t") for line in printed.splitlines() if "\t" in line]


@pytest.mark.parametrize("end", ["halt", "stop"])
def test_a_broker_has_the_same_messages_after_an_import(tmp_path: Path, end: str) -> None:
    java("Messages", tmp_path / "data", 7, 80, end)
    found = salvage(tmp_path / "data", tmp_path / "messages.xml", "artemis-xml")
    shutil.copytree(tmp_path / "data", tmp_path / "again")
    expected = java("Imported", tmp_path / "again", "-", *QUEUES)
    assert java("Imported", tmp_path / "new", tmp_path / "messages.xml", *QUEUES) == expected
    assert {row[0] for row in expected} == {"QUEUE", "MESSAGE"}
    assert {row[7] for row in expected if row[0] == "MESSAGE"} == {"true", "false"}  # large ones
    assert not found.left
    assert found.brought.total() == sum(row[0] == "MESSAGE" for row in expected)


def test_what_waits_in_pages_arrives_too(tmp_path: Path) -> None:
    data = Path(shutil.copytree(fixture_dir("brokers") / "paged", tmp_path / "data"))
    found = salvage(data, tmp_path / "messages.xml", "artemis-xml")
    in_pages = sum(len(contents) for contents in _pages(data))  # a broker that starts takes them
    assert in_pages
    expected = java("Imported", data, "-", "q0")
    assert java("Imported", tmp_path / "new", tmp_path / "messages.xml", "q0") == expected
    assert found.brought.total() == sum(row[0] == "MESSAGE" for row in expected) > in_pages
    assert not found.left


def _pages(data: Path) -> list[list[PagedMessage]]:
    files = (data / "paging").rglob("*.page")
    return [list(messages_of(memoryview(one.read_bytes()))) for one in files]


def test_what_xml_cannot_carry_is_left_and_the_rest_arrives_as_it_was(tmp_path: Path) -> None:
    queue = 'a <b> & "c" é\n'
    java("Odd", tmp_path / "data")
    found = salvage(tmp_path / "data", tmp_path / "messages.xml", "artemis-xml")
    assert found.left == {
        "messages for a queue, with a property that the importer would unpack": 1,
        "messages for a queue, with characters that XML does not have": 2,
        "messages for a queue, with the text _AMQ_NULL, which the importer takes for no value": 1,
        "properties of one character": 1,
    }
    got = java("Imported", tmp_path / "new", tmp_path / "messages.xml", queue)
    shown = java("Imported", tmp_path / "data", "-", queue)
    expected = [row for at, row in enumerate(shown) if at - 1 not in (7, 8, 9, 10)]
    expected[-1] = [one.replace("char Character x;", "") for one in expected[-1]]
    assert got == expected
