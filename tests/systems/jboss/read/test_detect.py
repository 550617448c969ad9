"""Journals among other files of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.systems.jboss.build import (
    add,
    image,
    sources,
    write,
)


def test_two_journals_in_one_folder_are_two_logs(tmp_path: Path) -> None:
    write(tmp_path, "g3", {1: image("g3", 1, [add(1)])})
    write(tmp_path, "g1a", {1: image("g1a", 1, [add(2)])})
    found = sources(tmp_path)
    assert sorted(source.name for source in found) == ["activemq-data.amq", "jbm-data.jbm"]


OTHERS = {
    "text": b"nothing of the kind\n" * 100,
    "zeros": bytes(2048),
    "counting": bytes(range(256)) * 8,
    "ones": b"\0\0\0\1" * 500,
}


@pytest.mark.parametrize("content", OTHERS)
def test_other_files_are_no_journal(content: str, tmp_path: Path) -> None:
    for name in ("data-1.dat", "log1.dat", "plain", "x.bin"):
        (tmp_path / name).write_bytes(OTHERS[content])
    assert sources(tmp_path) == []
