"""The pages on the block log: the hex example is a real file, the example programs run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tallystick.systems.cloudtran import SYSTEM
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.fixtures import fixture_dir

DOCS = Path(__file__).parents[3] / "docs"
_LINE = re.compile(r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)", re.MULTILINE)


def example() -> bytes:
    """The file of the page's hex example, with the padding and the second header added."""
    page = (DOCS / "formats" / "cloudtran.md").read_text("utf-8")
    dump = page.partition("```hex")[2].partition("```")[0]
    data = b""
    for place, digits in _LINE.findall(dump):
        assert int(place, 16) == len(data)
        data += bytes.fromhex(digits)
    return data + bytes(512 - 84 - len(data)) + data[:84]


def test_hex_example_is_the_block_that_it_describes(tmp_path: Path) -> None:
    (sample,) = (fixture_dir("cloudtran") / "worked-example" / "log").iterdir()
    assert example() == sample.read_bytes()
    path = tmp_path / "translog-0000000001-20130701T100000Z.ctlog"
    path.write_bytes(example())
    one = SYSTEM.read(LogSource("cloudtran", str(tmp_path), (str(path),)), ReadOptions())
    assert [record.type for record in one.records()] == ["persisting", "persisted"]
    assert one.verdict().engine["report_policy"]["pending"] == [
        {"txid": 1, "targets": ["b"], "operations": 2}
    ]


def test_example_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / "systems" / "cloudtran.md"
    programs = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert programs
    for program in programs:
        exec(compile(program, str(page), "exec"), {})


def test_properties_are_taken_by_their_documented_names() -> None:
    found = LogSettings.from_properties(
        {"ct.logger.fileSizeMB": "40/1", "threadCount": "2", "compress": "TRUE", "sync": "none"}
    )
    assert (found.file_size_mb, found.thread_count) == (40, 2)
    assert (found.compress, found.sync) == (True, "none")


@pytest.mark.parametrize(
    "properties",
    [
        {"noSuchThing": "1"},
        {"threadCount": "0"},
        {"diskBlockSize": "1000"},
        {"compress": "maybe"},
        {"logAfterCommit": "true"},
        {"zapLogFiles": "true"},
        {"maxWriteSize": "100"},
        {"signature": "00"},
    ],
)
def test_property_outside_its_range_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        LogSettings.from_properties(properties)
