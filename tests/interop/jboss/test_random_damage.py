"""Journals with random damage: our verdict is what the original's loader says of the same bytes."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from tallystick.records import Answer
from tallystick.systems.jboss.live.log import CircularJournal
from tests.interop.jboss.original import Loaded, RealJournal, real_journal
from tests.interop.jboss.test_interop import FILE_SIZE, SETTINGS, Work, play_ours, report
from tests.systems.jboss.build import read

pytestmark = pytest.mark.interop
JOURNALS = 8
DAMAGES = 20
NUMBERS = (0, -1, 1, 23, 400, FILE_SIZE, 0x7FFFFFFF, -0x80000000)


@pytest.mark.parametrize("name", ["artemis", "hornetq"])
def test_the_verdict_on_random_damage_is_the_loaders(name: str, tmp_path: Path) -> None:
    rng = random.Random(f"damage of {name}")
    reported: dict[Path, Loaded | None] = {}
    with real_journal(name, tmp_path / "none", file_size=FILE_SIZE) as original:
        for seed in range(JOURNALS):
            whole = _journal(tmp_path / f"{seed}", seed)
            for number in range(DAMAGES):
                damaged = tmp_path / f"{seed}-{number}"
                shutil.copytree(whole, damaged)
                for _ in range(rng.choice((1, 1, 2, 5))):
                    _damage(damaged, rng)
                if name == "artemis" or not _twins(damaged):
                    reported[damaged] = _loaded(original, damaged, tmp_path / "copy")
    assert len({None if one is None else len(one.live) for one in reported.values()}) > 10
    for folder, expected in reported.items():
        assert _ours(name, folder) == expected, folder.name


def _twins(folder: Path) -> bool:
    """Whether two files have the same id: HornetQ then takes them as the directory lists them."""
    ids = [path.read_bytes()[8:16] for path in folder.glob("*.amq")]
    return len(set(ids)) < len(ids)


def _journal(folder: Path, seed: int) -> Path:
    """What random work leaves, open transactions and stale files among it."""
    folder.mkdir()
    work = Work(seed)
    journal = CircularJournal(str(folder), SETTINGS["artemis"])
    play_ours(journal, [work.line() for _ in range(150)])
    if seed % 2:
        journal.close()
        return folder
    copy = folder.with_name(f"{folder.name}-killed")
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.lock"))
    journal.close()
    return copy


def _damage(folder: Path, rng: random.Random) -> None:
    """Change one file as failing disks, people and programs do."""
    path = rng.choice(sorted(folder.glob("*.amq")))
    content = bytearray(path.read_bytes())
    used = max(64, len(content.rstrip(b"J\0")))
    at = rng.randrange(min(used, len(content)))
    size = rng.choice((1, 4, 8, 60, 512, 1024))
    kind = rng.randrange(8)
    if kind == 0:
        content[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        content[at : at + size] = bytes(len(content[at : at + size]))
    elif kind == 2:
        content[at : at + size] = rng.randbytes(len(content[at : at + size]))
    elif kind == 3:
        source = rng.randrange(used)
        piece = content[source : source + size][: len(content) - at]
        content[at : at + len(piece)] = piece
    elif kind == 4 and at + 4 <= len(content):
        struct.pack_into(">i", content, at, rng.choice(NUMBERS))
    elif kind == 5:
        content[16 + rng.randrange(9)] = rng.randrange(256)
    elif kind == 6:
        other = rng.choice(sorted(folder.glob("*.amq"))).read_bytes()
        content[at : at + size] = other[at : at + size]
    else:
        content[512 * (at // 512) : 512 * (at // 512 + 1)] = b"J" * 512
    path.write_bytes(content)


def _loaded(original: RealJournal, folder: Path, copy: Path) -> Loaded | None:
    """What the original says of a copy; None if it gives up."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    original.tell(f"at {copy}")
    try:
        loaded = original.load()
    except AssertionError as refused:
        if "refused" not in str(refused) and "load" not in str(refused):
            raise
        return None
    original.tell("stop")
    loaded.nanoseconds = 0
    return loaded


def _ours(name: str, folder: Path) -> Loaded | None:
    engine = read(folder, generation=f"g3-{name}").verdict().engine
    return report(engine) if engine["loaded"] else None


@pytest.mark.parametrize("size", [5000, FILE_SIZE - 512, FILE_SIZE + 512])
def test_a_file_that_was_never_used_may_have_any_size(size: int, tmp_path: Path) -> None:
    """A load has all records, and deletes the file."""
    damaged = tmp_path / "damaged"
    with CircularJournal(str(tmp_path / "whole"), SETTINGS["artemis"]) as journal:
        for number in range(1, 21):
            journal.append_add_record(number, 45, bytes(100)).wait()
        shutil.copytree(tmp_path / "whole", damaged, ignore=shutil.ignore_patterns("*.lock"))
    unused = max(damaged.glob("*.amq"), key=lambda one: one.read_bytes()[8:16])
    content = unused.read_bytes()
    unused.write_bytes(content[:size] + content[-1:] * (size - len(content)))
    assert read(damaged).verdict().judgement.answer is Answer.SAFE
    with real_journal("artemis", tmp_path / "none", file_size=FILE_SIZE) as original:
        found = _loaded(original, damaged, tmp_path / "copy")
    assert found is not None
    assert len(found.live) == 20
    assert not (tmp_path / "copy" / unused.name).exists()
