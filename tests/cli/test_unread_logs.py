"""A log of which nothing can be read is named, and is no log without rows."""

from __future__ import annotations

import shlex
from pathlib import Path
from unittest import mock

import pytest

from tallystick import Journal
from tallystick.errors import LogUnreadableError
from tallystick.investigate import sql_views
from tallystick.investigate.rows import rows
from tallystick.investigate.sql_views import _Asked
from tallystick.pipeline.planning import Piece, find
from tallystick.pipeline.task import tables_of
from tallystick.reading.survey import scan
from tests.cli.conftest import Run

COMMANDS = (
    "rows", "rows --json", "rows --lost", "dump", "dump --stats", "dump --kind add",
    "asof --lsn 1000000000000000000", "export --to csv", "export --to csv --table transactions",
    "history PATH ID=5", "sql PATH 'select count(*) from records'",
    "sql PATH 'select count(*) from changes'", "sql PATH 'select count(*) from rows'",
)  # fmt: skip
UNREAD = "nothing of the log can be read"


@pytest.fixture(params=["no byte", "no page"])
def unread(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A database of H2 that has lost its bytes, or what tells where its log is."""
    bytes_left = 0 if request.param == "no byte" else 3 * 2048
    head = b"-- H2 0.5/B --      -- H2 0.5/B -- \n"[:bytes_left]
    (tmp_path / "bank.h2.db").write_bytes(head.ljust(bytes_left, b"\0"))
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_log_of_which_nothing_can_be_read_is_named(run: Run, unread: Path, command: str) -> None:
    words = shlex.split(command)
    given = [str(unread) if one == "PATH" else one for one in words]
    answer = run(*given, *([] if "PATH" in words else [unread]))
    assert answer.code == 1
    assert answer.err.count(UNREAD) == 1
    assert f"tallystick explain {unread}" in answer.err
    assert UNREAD not in answer.out


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_log_is_a_log_without_rows(run: Run, tmp_path: Path, command: str) -> None:
    Journal(tmp_path / "log").close()
    words = shlex.split(command)
    given = [str(tmp_path) if one == "PATH" else one for one in words]
    answer = run(*given, *([] if "PATH" in words else [tmp_path]))
    assert UNREAD not in answer.err
    assert answer.code == (2 if words[0] == "history" else 0)


def test_without_a_list_of_problems_it_is_an_error(unread: Path) -> None:
    for reading in (scan, rows):
        with pytest.raises(LogUnreadableError, match=UNREAD):
            list(reading(unread))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A log of nine acknowledged records, of which the fifth is damaged."""
    with Journal(tmp_path / "log") as log:
        for number in range(9):
            log.add(number, b"record %d" % number)
    segment = tmp_path / "log" / "0000000000000001.tally"
    held = bytearray(segment.read_bytes())
    held[held.index(b"record 4")] ^= 0xFF
    segment.write_bytes(held)
    return tmp_path / "log"


def test_counts_of_records_end_as_the_records_do_where_one_is_damaged(
    run: Run, damaged: Path
) -> None:
    for command in ("dump", "dump --stats", "dump --stats --json"):
        assert run(*command.split(), damaged).code == 1
    assert "damaged       1 of them" in run("dump", "--stats", damaged).out
    assert run("dump", "--stats", "--kind", "add", damaged).code == 0


@pytest.mark.parametrize(
    "command",
    [
        "rows", "rows --json", "rows --lost", "rows --key 5", "rows --to csv", "history PATH 2",
        "history PATH 4", "asof --lsn 1000000", "sql PATH 'select count(*) from rows'",
        "sql PATH 'select count(*) from changes'", "sql PATH 'from global_transactions'",
        "export --to csv --table changes", "sql PATH 'select count(*) from transactions'",
        "export --to csv --table transactions",
    ],
)  # fmt: skip
def test_the_rows_of_a_damaged_log_are_given_with_what_is_damaged(
    run: Run, damaged: Path, command: str
) -> None:
    words = shlex.split(command)
    given = [str(damaged) if one == "PATH" else one for one in words]
    answer = run(*given, *([] if "PATH" in words else [damaged]))
    assert answer.code == 1
    assert answer.err.count("1 acknowledged record from record") == 1
    assert "is damaged" in answer.err
    assert answer.err.count("corrupt-group") == 1


def test_what_is_not_read_to_its_end_is_not_judged(
    damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten rows of a large log must stay cheap: `damage_of` reads it to its end."""
    monkeypatch.setattr(sql_views, "damage_of", mock.Mock(side_effect=AssertionError))
    asked = _Asked((str(damaged),), "changes")
    batches = tables_of(map(Piece, find(asked.paths).logs), asked, ["changes"])
    assert next(batches)[1].num_rows > 0
    with pytest.raises(AssertionError):
        list(batches)


def test_without_a_list_of_problems_damage_is_an_error_once_all_rows_were_given(
    damaged: Path,
) -> None:
    found = list[str]()
    with pytest.raises(LogUnreadableError, match="is damaged"):
        found.extend(one.change.key for one in rows(damaged))
    assert len(found) == 8


def test_what_hides_no_record_is_no_damage_of_its_rows(run: Run, tmp_path: Path) -> None:
    with Journal(tmp_path / "log") as log:
        log.add(1, b"one")
    control = tmp_path / "log" / "control.tally"
    held = bytearray(control.read_bytes())
    held[8] ^= 0xFF  # one of the two copies
    control.write_bytes(held)
    assert "control-repaired" in run("verify", tmp_path).out
    answer = run("rows", tmp_path)
    assert (answer.code, answer.err) == (0, "")
