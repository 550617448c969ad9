"""Journals are found by content; names only decide where the content shows nothing."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tallystick.reading.discovery import discover
from tallystick.reading.survey import explain
from tallystick.systems.bitronix import SYSTEM
from tallystick.systems.bitronix.format.layout import HEADER_LENGTH, MEGABYTE
from tests.systems.bitronix.logs import file_bytes, record

ONE = file_bytes([record(8, 1, "a"), record(3, 2, "a")], 9_000)
TWO = file_bytes([], 8_000)


def _found(folder: Path, files: dict[str, bytes]) -> list[tuple[str, ...]]:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    logs = discover(folder, known=[SYSTEM]).logs
    return [tuple(Path(path).name for path in log.files) for log in logs]


@pytest.mark.parametrize(
    "names",
    [
        ("btm1.tlog", "btm2.tlog"),
        ("part1.btm", "part2.btm"),
        ("node7-journal-1.dat", "node7-journal-2.dat"),
        ("left", "right"),
        ("10.1", "10.2"),
    ],
)
def test_pairs_of_any_name(tmp_path: Path, names: tuple[str, str]) -> None:
    assert _found(tmp_path, dict(zip(names, (ONE, TWO), strict=True))) == [names]


def test_several_pairs_in_one_folder_have_names(tmp_path: Path) -> None:
    files = {f"{node}-{part}.tlog": ONE for node in ("a", "b") for part in (1, 2)}
    assert _found(tmp_path, files) == [("a-1.tlog", "a-2.tlog"), ("b-1.tlog", "b-2.tlog")]
    assert [log.name for log in discover(tmp_path).logs] == ["a-", "b-"]


def test_a_packed_file_is_a_twin_of_a_plain_one(tmp_path: Path) -> None:
    files = {"btm1.tlog": ONE, "btm2.tlog.gz": gzip.compress(TWO)}
    assert _found(tmp_path, files) == [("btm1.tlog", "btm2.tlog.gz")]


@pytest.mark.parametrize("two", [b"", bytes(PAIR := 4096), b"\xff" * PAIR], ids=str)
def test_the_twin_of_a_journal_file_belongs_to_it_whatever_it_holds(
    tmp_path: Path, two: bytes
) -> None:
    assert _found(tmp_path, {"btm1.tlog": ONE, "btm2.tlog": two}) == [("btm1.tlog", "btm2.tlog")]


def test_a_flipped_format_id_is_still_a_journal(tmp_path: Path) -> None:
    flipped = b"\xff" + ONE[1:]
    assert _found(tmp_path, {"x": flipped}) == [("x",)]
    unused = b"\xff" + file_bytes([], 8_000, size=HEADER_LENGTH + MEGABYTE)[1:]
    assert _found(tmp_path, {"btm9-1.tlog": unused}) != []


@pytest.mark.parametrize("size", [0, 20, 4096])
def test_a_silent_pair_needs_the_usual_names(tmp_path: Path, size: int) -> None:
    assert _found(tmp_path, {"left": bytes(size), "right": bytes(size)}) == []
    usual = {"btm1.tlog": bytes(size), "btm2.tlog": bytes(size)}
    assert _found(tmp_path, usual) == [("btm1.tlog", "btm2.tlog")]


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 5000, b"Btn", b"text\n" * 900, bytes(range(256)) * 20]
)
def test_other_files_are_no_journal(tmp_path: Path, content: bytes) -> None:
    assert _found(tmp_path, {"some.dat": content}) == []


@pytest.mark.parametrize("size", [1, 3, 4, HEADER_LENGTH - 1])
@pytest.mark.parametrize("cut", [(True, True), (True, False)])
def test_files_cut_in_their_header_are_a_journal_with_which_the_manager_hangs(
    tmp_path: Path, size: int, cut: tuple[bool, bool]
) -> None:
    names = ("btm1.tlog", "btm2.tlog")
    parts = [whole[:size] if short else whole for whole, short in zip((ONE, TWO), cut, strict=True)]
    assert _found(tmp_path, dict(zip(names, parts, strict=True))) == [names]
    (verdict,) = (answer := explain(tmp_path)).logs
    assert verdict.engine["2.1.4"]["openSkippingCorrupted"] == {"hangs": True}
    codes = [finding.code for finding in answer.findings[0]]
    assert codes.count("file-too-short") == sum(cut)
    start = verdict.differences[0]
    assert start.meaning.startswith("The manager hangs" if all(cut) else "The manager does not")
    assert start.strict.startswith("nothing can be read" if all(cut) else "the whole records")


def test_a_cut_file_is_recognised_by_its_format_id_whatever_its_name(tmp_path: Path) -> None:
    assert _found(tmp_path, {"left": ONE[:20], "right": TWO[:20]}) == [("left", "right")]
