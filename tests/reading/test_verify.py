"""What `verify` says of parts beside a log that are missing or do not fit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.cli import main
from tallystick.reading import explain, verify
from tallystick.records import Severity
from tests.fixtures import fixture_dir


def _cut_settings(data: Path) -> None:
    (data / "broker.xml").write_text("<configuration>")


def _no_log(database: Path) -> None:
    shutil.rmtree(database / "log")


def _no_settings(database: Path) -> None:
    (database / "service.properties").unlink()


def _nothing(_: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("system", "case", "change", "place", "advice"),
    [
        ("brokers", "bindings-missing", _nothing, "bindings", "put it back"),
        ("brokers", "whole", _cut_settings, "broker.xml", "would be decided by the broker.xml"),
        ("derby_databases", "page-older-than-log", _nothing, "seg0/c490.dat", "from one copy"),
        ("derby_databases", "page-older-than-log", _no_log, "log", "put it back"),
        ("derby_databases", "page-older-than-log", _no_settings, "service.properties", "put it"),
    ],
)
def test_a_part_is_named_where_it_is_or_would_be_with_what_to_do(
    system: str, case: str, change: Callable[[Path], None], place: str, advice: str, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(fixture_dir(system) / case, tmp_path / "data"))
    change(data)
    (part,) = (one for one in verify(data).findings if one.file == str(data / place))
    assert (part.code, part.severity) == ("not-safe", Severity.WARNING)
    assert advice in (part.advice or "")
    words = {one.judgement.words for one in explain(data).logs}
    assert {part.message.partition(":")[0]} <= words


def test_where_no_file_of_a_log_is_there_no_control_file_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "db"
    shutil.copytree(fixture_dir("derby_databases") / "page-older-than-log", database)
    _no_log(database)
    advice = {one.code: one.advice or "" for one in verify(database).findings}
    for code in ("control-missing", "missing-file"):
        assert advice[code].startswith("No file of the log is there: look for its folder")
    with pytest.raises(SystemExit):
        main(["verify", str(database)])
    assert f"in {database}/log" in capsys.readouterr().out
