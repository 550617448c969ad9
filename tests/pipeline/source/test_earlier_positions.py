"""Checkpoints of an earlier version, which kept an entry per file, are read on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.source.file_ranges import file_ranges, read
from tallystick.pipeline.source.positions import Position
from tallystick.pipeline.source.tailer import Tailer
from tests.fixtures import fixture_dir

WRITTEN_AT = "/tmp/earlier"  # where the logs were, as the positions say


@pytest.fixture
def earlier(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Logs, and the position after nine records of each: by table and system."""
    home = shutil.copytree(fixture_dir("earlier-positions"), tmp_path / "earlier")
    text = (home / "positions.json").read_text().replace(WRITTEN_AT, str(home))
    return home, json.loads(text)


def _rows(options: SourceOptions, start: Position, end: Position) -> list[tuple[Any, ...]]:
    names = ("file", "commit_sequence", "ordinal") if options.feeds else ("file", "offset")
    found = file_ranges(options, start, end)
    return [
        tuple(row[name] for name in names)
        for one in read(found, options)
        for row in one.to_pylist()
    ]


@pytest.mark.parametrize("table", ["records", "changes"])
@pytest.mark.parametrize("system", ["native", "jboss", "bitronix", "derby", "cloudtran"])
def test_a_position_by_file_is_read_on_by_log(
    earlier: tuple[Path, dict[str, Any]], system: str, table: str
) -> None:
    home, positions = earlier
    start = positions[table][system]
    options = SourceOptions((str(home / system),), table=table)
    end = Tailer(options).advance(start)
    assert len(end) == 1 < len(start) + 1
    rest = _rows(options, start, end)
    whole = _rows(options, {}, Tailer(options).advance({}))
    assert rest == whole[len(whole) - len(rest) :]
    assert table == "changes" or len(rest) == len(whole) - 9 > 0
    assert Tailer(options).advance(end) == end


def test_what_a_position_by_file_says_of_a_log_that_is_away_waits_for_it(
    earlier: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    home, positions = earlier
    start = positions["records"]["native"]
    options = SourceOptions((str(home),))
    (home / "native").rename(tmp_path / "away")
    waiting = Tailer(options).advance(start)
    assert all(waiting[path] == entry for path, entry in start.items())
    (tmp_path / "away").rename(home / "native")
    rows = _rows(options, waiting, Tailer(options).advance(waiting))
    only = SourceOptions((str(home / "native"),))
    assert rows == _rows(only, start, Tailer(only).advance(start))
