"""The operations of every fixture, replayed by our writer: the original's files, byte for byte.

Operation by operation, background work done, no buffer. What the original refused is refused
and leaves no byte. Left out: damaged journals, and those with a step that our writer does not have
(a crash inside a compaction, events); a journal restarted over free files of several lives depends
on the order in which a directory lists them.
"""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import TallystickError
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings
from tests.fixtures import cases, fixture_dir
from tests.systems.jboss.test_fixtures import manifest

GENERATIONS = {
    "g1a-jbm2-2008-08": "g1a",
    "g1b-jbm2-2008-09": "g1b",
    "g1c-jbm2-2009-02": "g1c",
    "g1d-hornetq-2.0.0": "g1d",
    "g2-hornetq-2.1.2": "g2",
    "g3-artemis-main": "g3",
}


def replayable(case: str) -> bool:
    found = manifest(case)
    lines = found.get("operations") or []
    if found["generation"] not in GENERATIONS or found.get("damage") or not lines:
        return False
    if not found["files"] or "stale-header" in case or "mismatch" in case:
        return False
    return not any(line.startswith(("event", "compact", "crashcompact")) for line in lines)


OTHER_TIMING = {"g1c-jbm2-2009-02/circular-reuse"}
"""A file is reused here while the one just taken still counted as opened: two threads' timing."""
CASES = [case for case in cases("jboss") if replayable(case) and case not in OTHER_TIMING]


def settings_of(case: str) -> JournalSettings:
    found = manifest(case)
    return JournalSettings(
        generation=GENERATIONS[found["generation"]],  # type: ignore[arg-type]
        prefix=found["prefix"],
        extension=found["extension"],
        file_size=found["file_size"],
        min_files=found["min_files"],
        pool_files=found["min_files"],
        user_version=found["user_version"] or 0,
        alignment=found.get("alignment") or 1,
    )


def data(text: str) -> bytes:
    return b"" if text == "-" else bytes.fromhex(text)


class Player:
    """Plays the operations of a manifest on our journal."""

    def __init__(self, folder: Path, settings: JournalSettings) -> None:
        self.folder = folder
        self.settings = settings
        self.journal: CircularJournal | None = None
        self.refused: list[int] = []

    def play(self, lines: list[str]) -> None:
        for number, line in enumerate(lines, 1):
            word, *rest = line.split()
            try:
                self.step(word, rest)
            except TallystickError:
                self.refused.append(number)

    def step(self, word: str, rest: list[str]) -> None:
        if word == "load":
            self.journal = CircularJournal(str(self.folder), self.settings)
        elif word in ("stop", "crash"):
            if self.journal is not None:
                self.journal.close()
            self.journal = None
        elif word != "open":
            assert self.journal is not None
            operate(self.journal, word, rest)


def operate(journal: CircularJournal, word: str, rest: list[str]) -> None:
    numbers = [int(one) for one in rest[:3] if one.lstrip("-").isdigit()]
    table: dict[str, Any] = {
        "next": lambda: journal.force_move_next_file(),
        "reclaim": lambda: journal.check_and_reclaim_files(),
        "add": lambda: journal.append_add_record(int(rest[0]), int(rest[1]), data(rest[2])),
        "update": lambda: journal.append_update_record(int(rest[0]), int(rest[1]), data(rest[2])),
        "delete": lambda: journal.append_delete_record(numbers[0]),
        "addtx": lambda: journal.append_add_record_transactional(
            int(rest[0]), int(rest[1]), int(rest[2]), data(rest[3])
        ),
        "updatetx": lambda: journal.append_update_record_transactional(
            int(rest[0]), int(rest[1]), int(rest[2]), data(rest[3])
        ),
        "deletetx": lambda: journal.append_delete_record_transactional(
            int(rest[0]), int(rest[1]), data(rest[2]) if len(rest) > 2 else b""
        ),
        "prepare": lambda: journal.append_prepare_record(
            int(rest[0]), data(rest[1]) if len(rest) > 1 else b""
        ),
        "commit": lambda: journal.append_commit_record(int(rest[0])),
        "rollback": lambda: journal.append_rollback_record(int(rest[0])),
    }
    ticket = table[word]()
    if ticket is not None:
        ticket.wait()


@pytest.mark.sampled(51)
@pytest.mark.parametrize("case", CASES)
def test_replayed_operations_give_the_originals_bytes(case: str, tmp_path: Path) -> None:
    player = Player(tmp_path, settings_of(case))
    player.play(manifest(case)["operations"])
    theirs = {
        one["name"]: gzip.decompress((fixture_dir("jboss") / case / one["stored_as"]).read_bytes())
        for one in manifest(case)["files"]
    }
    ours = {
        path.name: path.read_bytes()
        for path in tmp_path.iterdir()
        if path.name.endswith("." + player.settings.extension)
    }
    assert sorted(ours) == sorted(theirs)
    different = [name for name in ours if ours[name] != theirs[name]]
    assert different == []


@pytest.mark.parametrize("case", [one for one in CASES if manifest(one)["operation_errors"]])
def test_what_the_original_refuses_is_refused(case: str, tmp_path: Path) -> None:
    player = Player(tmp_path, settings_of(case))
    player.play(manifest(case)["operations"])
    expected = [int(text.split()[1]) for text in manifest(case)["operation_errors"]]
    assert player.refused == expected


def test_replayed_cases_cover_every_generation() -> None:
    assert {manifest(case)["generation"] for case in CASES} == set(GENERATIONS)
    assert replace(settings_of(CASES[0]), min_files=3).min_files == 3
