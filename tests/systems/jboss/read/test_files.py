"""The files that a load reads while a compaction is pending."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tallystick.records import Answer
from tallystick.storage import recent
from tallystick.storage.source import ByteSource, open_source
from tallystick.systems.jboss.format.compaction_control import Control, encode_control
from tallystick.systems.jboss.format.layout import (
    CONTROL_FILE,
    SHAPES,
)
from tallystick.systems.jboss.live.log import CircularJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.jboss.read import files
from tallystick.testing.spans import check_tiling
from tests.systems.jboss.build import (
    add,
    delete,
    engine_ids,
    image,
    read,
)


def compaction(folder: Path) -> None:
    """Files before and after a compaction of 1 and 2 to a file with id 1, named 5; 3 is current."""
    name = "activemq-data-{}.amq"
    old = {1: image("g3", 1, [add(1), add(2)]), 2: image("g3", 2, [delete(1), add(3)])}
    for number, content in {**old, 3: image("g3", 3, [add(4)])}.items():
        (folder / name.format(number)).write_bytes(content)
    (folder / (name.format(5) + ".cmp")).write_bytes(image("g3", 1, [add(2), add(3)]))


def test_compaction_without_control_file_counts_the_old_files(tmp_path: Path) -> None:
    compaction(tmp_path)
    assert engine_ids(read(tmp_path)) == [2, 3, 4]
    found = {finding.code for finding in read(tmp_path).findings()}
    assert "compaction-leftover" in found


def test_compaction_with_control_file_counts_the_new_files(tmp_path: Path) -> None:
    compaction(tmp_path)
    names = tuple(f"activemq-data-{number}.amq" for number in (1, 2))
    control = Control(names, ("activemq-data-5.amq.cmp",))
    (tmp_path / CONTROL_FILE).write_bytes(encode_control(SHAPES["g3"], control))
    reading = read(tmp_path)
    assert engine_ids(reading) == [2, 3, 4]
    used = {Path(record.file).name for record in reading.records()}
    assert used == {"activemq-data-5.amq.cmp", "activemq-data-3.amq"}
    for file in reading.files():
        check_tiling(file)


def test_a_verdict_opens_each_file_four_times_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a bucket each opening is a download: sizes and last bytes are known from another one."""
    opened = Counter[str]()

    def counted(path: str) -> ByteSource:
        opened[path] += 1
        return open_source(path)

    monkeypatch.setattr(files, "open_source", counted)
    monkeypatch.setattr(recent, "HELD_MAX", 0)
    with CircularJournal(str(tmp_path), JournalSettings(file_size=1 << 20)) as journal:
        for number in range(1, 90):
            journal.append_add_record(number, 1, bytes(100_000)).wait()
    names = {str(one) for one in tmp_path.glob("*.amq")}
    assert len(names) > recent.HELD_MIN
    reading = read(tmp_path)
    reading.files()
    assert reading.judgement.answer is Answer.SAFE
    assert max(opened[name] for name in names) <= 4
