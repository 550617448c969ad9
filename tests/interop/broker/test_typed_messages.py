"""Messages that Artemis's own client sent to a real broker are the rows of its journal's tables."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from tallystick.arrow.schemas import batches_of_changes
from tallystick.pipeline.change_feed import feed
from tallystick.pipeline.typed import typed
from tallystick.systems.jboss.reader import JournalReading
from tests.interop.broker.test_relay import JARS
from tests.interop.java import classpath, compile_java, run_java
from tests.systems.jboss.build import read

pytestmark = pytest.mark.interop

TYPES = {"0": "default", "3": "text", "4": "bytes", "5": "map"}

Row = dict[str, Any]


Done = tuple[Path, list[list[str]]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The folder of a broker that was halted after its last commit, and what was done there."""
    return _run_broker(tmp_path_factory, "halt")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The folder of a broker that was stopped in order, and what was done there."""
    return _run_broker(tmp_path_factory, "stop")


def _run_broker(tmp_path_factory: pytest.TempPathFactory, end: str) -> Done:
    folder = tmp_path_factory.mktemp("broker") / "data"
    jars = classpath(JARS)
    path = f"{jars}:{compile_java(Path(__file__).parent, jars)}"
    printed = run_java("Messages", folder, 1, 60, end, classpath=path, timeout_s=120)
    return folder, [line.split("\t") for line in printed.splitlines() if "\t" in line]


def rows_of(reading: JournalReading, name: str) -> tuple[dict[str, Row], dict[str, Row]]:
    """All rows of a collection that were ever there, and those that are there at the end."""
    (collection,) = (one for one in reading.collections() if one.name == name)
    kinds = [(one.name, one.kind) for one in collection.columns]
    changes = batches_of_changes(reading.changes_of(name), "none")
    seen: dict[str, Row] = {}
    live: dict[str, Row] = {}
    for batch in typed(feed(changes), name, kinds):
        for row in batch.to_pylist():
            if row["_change_type"] == "insert":
                seen[row["_key"]] = live[row["_key"]] = row
            else:
                del live[row["_key"]]
    return seen, live


def test_messages_are_those_that_were_sent(broker: Done) -> None:
    folder, done = broker
    seen, live = rows_of(read(folder / "journal"), "messages")
    found = {json.loads(row["properties"])["n"]: row for row in seen.values()}
    sent = _kept(done)
    assert found.keys() == sent.keys()
    assert any(one[3] for one in sent.values())  # a large one
    for number, one in sent.items():
        address, large, kind, _, priority, moment, expires, body, text = one[2:]
        row = found[number]
        assert row["address"] == address
        assert row["protocol"] == ("core, large" if large else "core")
        assert (row["type"], row["durable"]) == (TYPES[kind], True)
        assert row["priority"] == int(priority)
        assert _milliseconds(row["timestamp"]) == int(moment)
        assert (_milliseconds(row["expiration"]) if row["expiration"] else 0) == int(expires)
        assert _properties_of(number).items() <= json.loads(row["properties"]).items()
        if not large and text:
            assert row["text"] == bytes.fromhex(text).decode()
        elif not large:
            assert row["body"].hex() == body
    # A message is deleted some time after the commit that acknowledged its last reference.
    left = {json.loads(row["properties"])["n"] for row in live.values()}
    assert sent.keys() - _taken(done) <= left <= sent.keys()


def test_messages_that_were_taken_are_deleted(stopped: Done) -> None:
    folder, done = stopped
    _, live = rows_of(read(folder / "journal"), "messages")
    left = {json.loads(row["properties"])["n"] for row in live.values()}
    assert _taken(done)
    assert left == _kept(done).keys() - _taken(done)


def test_references_are_those_of_queues(broker: Done) -> None:
    folder, done = broker
    journal = read(folder / "journal")
    messages, _ = rows_of(journal, "messages")
    numbers = {int(key): json.loads(row["properties"])["n"] for key, row in messages.items()}
    _, live = rows_of(journal, "references")
    taken = _taken(done)
    expected = {
        (number, queue)
        for number, one in _kept(done).items()
        if number not in taken
        for queue in (["orders"] if one[2] == "orders" else ["left", "right"])
    }
    assert {(numbers[row["message_id"]], row["queue"]) for row in live.values()} == expected


def test_queues_are_those_that_were_made(broker: Done) -> None:
    bindings = read(broker[0] / "bindings")
    _, queues = rows_of(bindings, "queues")
    assert {(one["name"], one["address"], one["routing_type"]) for one in queues.values()} == {
        ("orders", "orders", "anycast"),
        ("left", "news", "multicast"),
        ("right", "news", "multicast"),
    }
    assert {one["filter"] for one in queues.values()} == {None, "n > 2"}
    _, addresses = rows_of(bindings, "addresses")
    assert {"orders", "news"} <= {one["name"] for one in addresses.values()}


def _taken(done: list[list[str]]) -> set[int]:
    return {int(one[1]) for one in done if one[0] == "TAKEN"}


def _kept(done: list[list[str]]) -> dict[int, list[str]]:
    """The durable messages that were committed: since the last commit, a rollback takes all."""
    kept: dict[int, list[str]] = {}
    pending: dict[int, list[str]] = {}
    for one in done:
        if one[0] == "LOST":
            pending.clear()
        elif one[0] == "SENT":
            number = int(one[1])
            pending[number] = one
            if number % 3 == 0:
                kept |= pending
                pending.clear()
    kept |= pending
    return {number: one for number, one in kept.items() if one[5] == "true"}


def _properties_of(number: int) -> dict[str, object]:
    return {
        "n": number, "text": f"naïve € {number}", "flag": number % 2 == 0, "long": -number,
        "double": number / 4, "bytes": f"01{number:02x}", "null": None,
    }  # fmt: skip


def _milliseconds(moment: Any) -> int:
    return int((moment - datetime.datetime(1970, 1, 1)) / datetime.timedelta(milliseconds=1))
