"""Readings of the fixtures, and small page store files made in memory for the tests."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tallystick.reading.discovery import discover
from tallystick.records import Xid
from tallystick.storage.source import ByteSource
from tallystick.systems.h2 import SYSTEM
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import StaticHeader, Trunk, VariableHeader
from tallystick.systems.h2.format.lzf import expand_into
from tallystick.systems.h2.read.files import OpenedFile, open_file
from tallystick.systems.h2.reader import H2Reading
from tallystick.systems.protocol import ReadOptions
from tests.fixtures import fixture_dir


def manifest(case: str) -> dict[str, Any]:
    """Return the oracle of a case, its record list included."""
    folder = fixture_dir("h2") / case
    oracle: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    if "records" not in oracle:
        with gzip.open(folder / oracle["records_file"], "rt") as lines:
            oracle["records"] = [json.loads(line) for line in lines]
    return oracle


def reading_of(path: Path, **options: Any) -> H2Reading:
    """Return the reading of the only h2 log at or below a path."""
    (source,) = discover(path, known=[SYSTEM]).logs
    return H2Reading(source, ReadOptions(**options))


def fixture(case: str) -> H2Reading:
    """Return the reading of a case, in the time zone of the process that wrote its oracle."""
    return reading_of(fixture_dir("h2") / case, timezone=manifest(case)["timezone"])


def opened(data: bytes, **options: Any) -> OpenedFile:
    """Open a file with these bytes."""
    return open_file(ByteSource("made.h2.db", memoryview(data)), ReadOptions(**options))


def page_file(
    body: bytes, *, page_size: int = 512, key: int = 7, pages_listed: int | None = None
) -> bytearray:
    """Return a file of no tables whose log holds ``body``: trunk page 5, data pages from 6 on."""
    room = page_size - layout.DATA_START
    count = max(1, -(-len(body) // room))
    listed = tuple(range(6, 6 + (pages_listed or count)))
    header = VariableHeader(1, key, 5, 6)
    pages = [
        layout.encode_static_header(StaticHeader(page_size)),
        layout.encode_variable_header(header, page_size),
        layout.encode_variable_header(header, page_size),
        layout.seal(bytearray((bytes((layout.FREE_LIST,))).ljust(page_size, b"\0")), 3),
        bytes(page_size),
        layout.encode_trunk(Trunk(5, 5, key, 0, listed), page_size),
    ]
    for at in range(count):
        piece = body[at * room : (at + 1) * room]
        pages.append(layout.encode_data(6 + at, 5, key, piece, page_size))
    return bytearray(b"".join(pages))


def expand(source: bytes, size: int) -> bytes:
    """Return the page in an LZF image; raise `ExpansionError` for a bad one."""
    out = bytearray(size)
    expand_into(source, out, size)
    return bytes(out)


def xid_name(xid: Xid) -> str:
    """Return the name under which H2's JDBC driver prepares this branch."""
    return f"XID_{xid.format_id}_{xid.bqual.hex().upper()}_{xid.gtrid.hex().upper()}"
