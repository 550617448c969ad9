"""The real Derby, 10.14.2.0 or a later one, and the table ``n`` seen in its log."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tallystick.records import Kind
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import (
    compressed_int,
    compressed_long,
    format_id,
)
from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.live.log import LogToFile
from tallystick.systems.derby.reader import DerbyReading
from tests.interop.java import classpath, compile_java, run_java, start_java
from tests.pipeline.applied import Shown, rows_shown
from tests.systems.derby.logs import reading_of

Rows = dict[int, str]


VERSIONS = ("10.14.2.0", "10.16.1.1")
"""The engine with which everything was compared, and the last one that runs on Java 17."""


@cache
def _classpath(version: str = VERSIONS[0]) -> str:
    parts = ["derby"] if version == VERSIONS[0] else ["derby", "derbytools"]
    jars = classpath([f"org.apache.derby:{one}:{version}" for one in parts])
    # What runs on older ones, too, asks for nothing but JDBC.
    classes = compile_java(Path(__file__).parent, jars) if version in VERSIONS else Path(_classes())
    return f"{jars}{os.pathsep}{classes}"


def _classes() -> str:
    return _classpath().rpartition(os.pathsep)[2]


def derby(database: Path | str, *steps: str, version: str = VERSIONS[0]) -> dict[str, str]:
    """Run the steps; what was printed, by its first word."""
    printed = run_java(
        "RealDerby",
        database,
        *steps,
        classpath=_classpath(version),
        options=["-Dderby.stream.error.file=/dev/null"],
        timeout_s=120,
    )
    lines = [line.partition(" ") for line in printed.splitlines()]
    return {
        (word if word != "BOOT-EACH" else rest.partition(" ")[0]): rest.partition(" ")[2]
        if word == "BOOT-EACH"
        else rest
        for word, _, rest in lines
    }


def random_tables(database: Path, seed: int, steps: int, end: str, *, version: str) -> Shown:
    """Change tables at random (see RandomTables.java); what all tables show before the end."""
    (database.parent / "derby.properties").write_text(
        "derby.storage.logSwitchInterval=100000\nderby.storage.checkpointInterval=100000\n"
    )
    printed = run_java(
        "RandomTables", database, seed, steps, end,
        classpath=_classpath(version),
        options=[
            "-Dderby.stream.error.file=/dev/null",
            f"-Dderby.system.home={database.parent}",
        ],
        timeout_s=120,
    )  # fmt: skip
    return rows_shown(printed.splitlines())


def writer_calls(lines: list[str]) -> list[str]:
    """The answers of Derby's own LogAccessFile to calls, one for each (see WriterCalls.java)."""
    with start_java("WriterCalls", classpath=_classpath()) as process:
        return process.communicate("\n".join(lines) + "\n", timeout=120)[0].splitlines()


def rows_of(text: str) -> Rows:
    """Rows as the real Derby printed them."""
    pairs = [one.partition("=") for one in text.split("|") if one]
    return {int(number): value for number, _, value in pairs}


@dataclass(frozen=True, slots=True)
class Heap:
    """Where the next row of the table goes: what an inserted record must say."""

    page: Page
    version: int
    record_id: int
    slot: int


def heap_of(reading: DerbyReading) -> Heap:
    """The table's page and its state after all records, from the log alone."""
    first = next(change for change in reading.changes() if b"derby" in (change.after or b""))
    ranges = reading.scan.ranges()
    body = next(
        one.body for one in ranges if (one.file.path, one.offset) == (first.file, first.offset)
    )
    assert body is not None
    page: Page = body.fields["pageId"]
    version, ids = 0, set[int]()
    for one in reading.scan.ranges():
        body = one.body
        if body is None or body.fields.get("pageId") != page or not one.in_scan:
            continue
        version = body.fields["pageVersion"] + 1
        if body.operation == operations.INSERT:
            ids.add(body.fields["recordId"])
    return Heap(page, version, max(ids) + 1, len(ids))


def insert(log: LogToFile, number: int, heap: Heap, row: int) -> Heap:
    """Log the insert of ``(row, 'ours <row>')``; returns what comes next."""
    page = (heap.page.segment, heap.page.container, heap.page.number, heap.version)
    operation = (
        format_id(operations.INSERT)
        + b"".join(map(compressed_long, page))
        + compressed_int(heap.record_id)
        + b"\0\0"
        + compressed_int(heap.slot)
        + b"\1"
    )
    text = f"ours {row}".encode()
    fields = [row.to_bytes(4, signed=True), len(text).to_bytes(2) + text]
    # The row on the page begins with its record id; deleted rows keep their slot.
    image = b"\0" + compressed_int(heap.record_id) + b"\2"
    image += b"".join(b"\x20" + len(field).to_bytes(2) + field for field in fields)
    log.log(number, operation, image)
    return Heap(heap.page, heap.version + 1, heap.record_id + 1, heap.slot + 1)


def rows_in_log(database: Path) -> Rows:
    """The table's rows by the committed changes in the log alone."""
    reading = reading_of(database)
    table: dict[str, dict[str, bytes | None]] = {}
    wanted: str | None = None
    for change in reading.changes():
        if wanted is None and b"derby" in (change.after or b""):
            wanted = change.collection
        if change.collection != wanted:
            continue
        if change.kind is Kind.DELETE:
            table.pop(change.key, None)
        else:
            table[change.key] = {**table.get(change.key, {}), **(change.values or {})}
    return dict(sorted(map(_row, table.values())))


def _row(values: dict[str, bytes | None]) -> tuple[int, str]:
    number, text = values["0"], values["1"]
    assert number is not None
    assert text is not None
    return int.from_bytes(number, signed=True), text[2:].decode()
