"""Several logs of one folder are told apart wherever one of them is named."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import tallystick
from tallystick.cli import main
from tallystick.investigate.diff import diff
from tallystick.investigate.rows import rows
from tallystick.pipeline.source.positions import key_of
from tallystick.reading.engine_errors import look_up
from tallystick.reading.survey import survey
from tallystick.rescue import repair
from tests.indoubt.estates import EXAMPLES
from tests.rescue.kit import case, unpacked

NAMES = ["a.h2.db", "b.h2.db", "c.h2.db"]


@pytest.fixture
def three(tmp_path: Path) -> Path:
    folder = tmp_path / "three"
    folder.mkdir()
    cases = ("committed-2048", "corrupt-checksum-2048", "indoubt-one-2048")
    for name, of in zip(NAMES, cases, strict=True):
        log = case("h2", of, tmp_path / of)
        shutil.copy(log / "db.h2.db", folder / name)
    with (folder / "c.h2.db").open("r+b") as file:
        file.truncate(20000)
    return folder


def test_explain_heads_each_with_its_name(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain", str(three)])
    heads = re.findall(r"^[A-Z ]+  h2  (\S+)  ", capsys.readouterr().out, re.MULTILINE)
    assert heads == [f"{three}/{name}" for name in NAMES]
    answer = tallystick.explain(three)
    found = answer.to_dict()
    assert [(one["path"], one["name"]) for one in found["logs"]] == [
        (str(three), name) for name in NAMES
    ]
    assert [one["path"] for one in found["databases"]] == heads
    assert [line.split(" ")[0] for line in str(answer).splitlines() if " (h2): " in line] == heads
    databases = tallystick.triage(three).to_dict()["databases"]
    assert sorted(one["path"] for one in databases) == heads
    with pytest.raises(SystemExit):
        main(["explain", str(three / "b.h2.db")])
    assert f"h2  {three}/b.h2.db  (" in capsys.readouterr().out


def test_other_commands_name_each(three: Path, tmp_path: Path) -> None:
    paths = [f"{three}/{name}" for name in NAMES]
    assert [path for path, *_ in look_up("90030", str(three)).answers] == paths
    assert [one.path for one in tallystick.scrub(three).logs] == paths
    assert [one.sides[0].log for one in diff(three, three)] == paths
    left = repair(three, tmp_path / "copy").unmended
    assert [one.path for one in left] == paths[1:]
    (three / "a.h2.db").write_bytes((three / "b.h2.db").read_bytes())
    with (three / "a.h2.db").open("r+b") as file:
        file.seek(40)
        file.write(bytes(16))
    mended = repair(three, tmp_path / "copy").logs
    assert [one.path for one in mended] == NAMES
    assert all(one.before is not None for one in mended)
    assert json.dumps([one.to_dict() for one in mended])


def test_a_log_alone_in_its_folder_is_called_by_it(tmp_path: Path) -> None:
    log = case("h2", "committed-2048", tmp_path / "log")
    (verdict,) = tallystick.explain(log).logs
    assert (verdict.name, verdict.place) == ("", str(log))


def test_logs_of_several_systems_in_one_folder_are_told_apart(tmp_path: Path) -> None:
    """The report has a log by its name: of these it showed the last one alone, as safe."""
    both = tmp_path / "both"
    case("h2", "corrupt-checksum-2048", both)
    unpacked(EXAMPLES / "orphan" / "bitronix", tmp_path / "other")
    for file in (tmp_path / "other").iterdir():
        shutil.copy(file, both)
    found = tallystick.triage(both).to_dict()
    assert {one["path"] for one in found["databases"]} == {f"{both}/h2", f"{both}/bitronix"}
    assert {one.change.log for one in rows(both, problems=[])} == {f"{both}/h2", f"{both}/bitronix"}
    # A stream that has followed one goes on when the other one comes.
    assert {*map(key_of, survey(both).logs)} == {f"h2 {both}", f"bitronix {both}"}
