"""A setting whose name no system found there knows is refused, not ignored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.cli import main
from tallystick.errors import UnsupportedFormatError
from tallystick.reading import explain, inspect, scan, verify
from tallystick.systems.protocol import ReadOptions
from tests.systems.jboss.build import add, image, write


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    write(tmp_path, "g3", {1: image("g3", 1, [add(1)])})
    return tmp_path


@pytest.mark.parametrize("read", [explain, inspect, verify, lambda *a, **b: list(scan(*a, **b))])
def test_an_unknown_setting_is_refused(journal: Path, read: Callable[..., object]) -> None:
    read(journal, options=ReadOptions(settings={"file_size": "1024"}))
    with pytest.raises(UnsupportedFormatError, match="disk_block_size") as refused:
        read(journal, options=ReadOptions(settings={"disk_block_size": "512"}))
    assert "file_size" in (refused.value.expected or "")


def test_the_command_line_names_it(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", str(journal), "--set", "flie_size=1024"])
    assert ended.value.code not in (0, None)
    assert "flie_size" in "".join(capsys.readouterr())


def test_where_no_log_is_found_no_setting_is_wrong(tmp_path: Path) -> None:
    answer = explain(tmp_path, options=ReadOptions(settings={"any": "1"}))
    assert [one.code for one in answer.problems] == ["no-log"]
