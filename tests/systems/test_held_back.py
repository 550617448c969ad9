"""Which transaction keeps a log from giving up old files, in one line of explain and inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tallystick.cli import main
from tallystick.reading import explain, inspect
from tallystick.records import Xid
from tallystick.services.journal import Journal
from tallystick.storage.source import ByteSource
from tallystick.systems.derby.engine.result import OpenTransaction, Recovery
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.verdict.strict import held_by_open, redo_bytes
from tallystick.systems.held_back import (
    LOADED_PER_S,
    REDONE_PER_S,
    held_back,
    held_back_text,
    redo_text,
)
from tallystick.systems.tally.live.settings import Settings
from tests.fixtures import fixture_dir
from tests.kit import read_in_runs
from tests.systems.bitronix import logs as bitronix
from tests.systems.jboss.build import add, add_tx, commit, file_name, image


def journal(folder: Path, files: list[Any]) -> None:
    for number, items in enumerate(files, 1):
        (folder / file_name("g3", number)).write_bytes(image("g3", number, items, fill=b"\0"))


def test_the_oldest_open_transaction_of_a_journal_holds_the_files_with_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = bytes(900)
    last = [add_tx(60, 61), add_tx(70, 71)]
    journal(
        tmp_path,
        [[add_tx(50, 51), commit(50, 1), add_tx(60, 62, body)], [add(63, body)], last, []],
    )
    expected = held_back("transaction 60", "activemq-data-1.amq", 74, [1024, 1024])
    assert explain(tmp_path).logs[0].strict["held_back"] == expected
    assert inspect(tmp_path).logs[0].held_back == expected
    for command in ("explain", "inspect"):
        with pytest.raises(SystemExit):
            main([command, str(tmp_path)])
        line = "Held back: 2 files, 2,048 bytes, by transaction 60, begun in activemq-data-1.amq at"
        assert line in capsys.readouterr().out


def test_a_long_redo_is_told_with_its_bytes_and_how_long_they_took() -> None:
    assert redo_text(REDONE_PER_S - 1) == ""
    assert redo_text(48_254_685).startswith("48,254,685 bytes of log; at 5 MB a second")
    assert redo_text(48_254_685).endswith("about 10 s")


def test_a_long_load_of_a_journal_is_told_at_its_own_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert redo_text(LOADED_PER_S - 1, LOADED_PER_S) == ""
    journal(tmp_path, [[add(1)], [add(2)], []])
    assert explain(tmp_path).logs[0].strict["loaded"] == 3 * 1024
    monkeypatch.setattr("tallystick.cli.answers.LOADED_PER_S", 1024)
    with pytest.raises(SystemExit):
        main(["explain", str(tmp_path)])
    text = capsys.readouterr().out
    assert "Load: 3,072 bytes of log; at 0 MB a second" in text
    assert "about 3 s" in text
    assert "Redo:" not in text


def test_the_redo_of_derby_is_the_log_from_its_begin_to_its_end() -> None:
    names = {number: f"log{number}.dat" for number in (1, 2, 3)}
    files = {n: LogBytes(n, ByteSource(name, memoryview(bytes(100)))) for n, name in names.items()}
    recovery = Recovery()
    recovery.boots, recovery.start, recovery.log_end = True, (1 << 32) + 40, (3 << 32) + 30
    assert redo_bytes(LogFiles(files), recovery) == 60 + 100 + 30
    recovery.boots = False
    assert redo_bytes(LogFiles(files), recovery) is None


def test_the_redo_of_h2_is_its_log_pages() -> None:
    (log,) = explain(fixture_dir("h2") / "large-log-512").logs
    assert log.strict["redo"] % 512 == 0
    assert log.strict["redo"] > 0


@pytest.mark.parametrize("runs", [True, False])
def test_a_transaction_of_h2_holds_the_log_pages_that_a_checkpoint_would_have_freed(
    runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if runs:
        read_in_runs(monkeypatch)
    for case, name in (
        ("sections-uncommitted-2048", "session 4"),
        ("indoubt-checkpoint-2048", "transaction GLOBAL_1, session 4"),
    ):
        (log,) = explain(fixture_dir("h2") / case).logs
        held = log.strict["held_back"]
        assert (held["transaction"], held["file"], held["files"]) == (name, "db.h2.db", 1)
        assert 0 < held["bytes"] <= log.strict["redo"]
        assert held["bytes"] % 2048 == 0
    (alone,) = explain(fixture_dir("h2") / "uncommitted-2048").logs  # no checkpoint came after it
    assert "held_back" not in alone.strict


@pytest.mark.parametrize(
    ("time", "since"),
    [
        (6_000, {}),
        (1_760_000_000_000, {"since": "2025-10-09T08:53:20+00:00"}),
        (1 << 62, {}),
    ],
)
def test_an_open_decision_of_bitronix_is_carried_from_file_to_file(
    time: int, since: dict[str, str], tmp_path: Path
) -> None:
    opened = bitronix.record(8, 1, "a", time=time)
    size = len(opened.encode())
    closed = [bitronix.record(one, 2, "a", gtrid=bitronix.gtrid(2), time=time) for one in (8, 3)]
    older = bitronix.file_bytes([opened, *closed], time, 30 + 3 * size)
    newer = bitronix.file_bytes([opened], time + 1, 30 + 3 * size)
    reading = bitronix.write_pair(tmp_path, older, newer)
    expected = held_back(f"the decision {bitronix.GTRID.hex()}", "btm1.tlog", 21, [size, size])
    found = reading.verdict().strict["held_back"]
    assert found == expected | since
    assert all(text in held_back_text(found) for text in since.values())
    alone = bitronix.write_pair(tmp_path, older, bitronix.file_bytes([], 1, 30 + 3 * size))
    assert "held_back" not in alone.verdict().strict


def test_nothing_is_held_back_where_all_that_is_open_began_in_the_newest_file(
    tmp_path: Path,
) -> None:
    journal(tmp_path, [[add(1, bytes(900))], [add_tx(60, 61)], []])
    assert "held_back" not in explain(tmp_path).logs[0].strict
    assert inspect(tmp_path).logs[0].held_back is None


@pytest.mark.parametrize(
    ("opened", "expected"),
    [
        ({188: 1, 190: 2}, held_back("transaction 188", "log1.dat", 40, [60, 100, 100])),
        ({190: 2}, held_back("transaction 190", "log2.dat", 40, [60, 100])),
        ({191: 3}, None),
        ({}, None),
    ],
)
def test_an_open_transaction_of_derby_holds_all_files_from_its_first_record_on(
    opened: dict[int, int], expected: dict[str, Any] | None
) -> None:
    names = {number: f"log{number}.dat" for number in (1, 2, 3)}
    files = {n: LogBytes(n, ByteSource(name, memoryview(bytes(100)))) for n, name in names.items()}
    table = {
        number: OpenTransaction(number, (file << 32) + 40, 0, False, None)
        for number, file in opened.items()
    }
    table[5] = OpenTransaction(5, (1 << 32) + 30, 0, True, None)
    assert held_by_open(LogFiles(files), Recovery(table=table)) == expected


def test_a_transaction_of_a_native_log_holds_all_segments_from_its_begin_on(
    tmp_path: Path,
) -> None:
    settings = Settings(segment_size=32 << 10, preallocate=False, idle_mark_s=None)
    with Journal(tmp_path, settings=settings) as log:
        tx = log.transaction()
        tx.add(7, b"row")
        tx.prepare(b"", Xid(1, b"gtrid", b"branch"))
        log.append_many([bytes(1000)] * 100)
    held = explain(tmp_path).logs[0].strict["held_back"]
    assert held["transaction"].startswith("transaction ")
    assert held["offset"] is None
    assert held["files"] > 2
    assert held["bytes"] == held["files"] * settings.segment_size
