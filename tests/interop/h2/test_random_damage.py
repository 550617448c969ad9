"""Databases with random damage: our verdict is what the real H2 does with the same bytes.

Two things are not looked into (see `tallystick.systems.h2.engine.opening`): b-tree pages after
their header, and SQL in the catalog. Where only they keep a database from opening, we may say it
opens.
"""

from __future__ import annotations

import random
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from tallystick.systems.h2.engine.tables import StoreError
from tests.interop.h2.test_h2 import Answer, Rows, _predicted, h2
from tests.systems.h2.kit import reading_of

pytestmark = pytest.mark.interop
DAMAGES = 45
AT_ONCE = 15
ENDLESS = ["error\t0\tdoes not end"]
"""The engine tries for ever to open some damaged databases; of those it says nothing."""
MISSED_MAX = 0.1
NUMBERS = (0, -1, 1, 3, 4, 64, 0x7FFFFFFF, -0x80000000)


@dataclass(slots=True)
class Said:
    """Our prediction; ``rows`` is None where a table page cannot be read."""

    opened: bool
    doubt: dict[str, str]
    rows: Rows | None


@pytest.mark.parametrize("page_size", [512, 2048])
@pytest.mark.parametrize("prepared", ["", "BRANCH"])
def test_the_verdict_on_random_damage_is_the_engines(
    page_size: int, prepared: str, tmp_path: Path
) -> None:
    rng = random.Random(f"{page_size}{prepared}")
    whole = tmp_path / "db.h2.db"
    h2("create", whole, page_size)
    h2("work", whole, page_size, 80, prepared)
    files = [_damaged(whole, tmp_path / str(number), rng, page_size) for number in range(DAMAGES)]
    ours = [_said(path) for path in files]
    real = [one for at in range(0, DAMAGES, AT_ONCE) for one in h2("report", *files[at:][:AT_ONCE])]
    assert {one.opened for one in ours} == {True, False}
    pairs = [pair for pair in zip(files, ours, real, strict=True) if pair[2].errors != ENDLESS]
    assert len(pairs) > DAMAGES / 2
    assert [path for path, said, did in pairs if did.opened and not said.opened] == []
    missed = [path for path, said, did in pairs if not _agree(said, did)]
    assert len(missed) <= MISSED_MAX * len(pairs), missed


def _agree(said: Said, did: Answer) -> bool:
    if said.opened != did.opened or not did.opened:
        return said.opened == did.opened
    if did.errors:  # a page of the table itself, which only a query reads
        return True
    return said.doubt == did.doubt and said.rows in (None, did.rows)


def _said(path: Path) -> Said:
    recovery = reading_of(path).verdict().engine["recovery"]
    if not recovery["opened"]:
        return Said(opened=False, doubt={}, rows=None)
    doubt = {one["transaction"]: one["state"] for one in recovery["in_doubt"]}
    try:
        return Said(opened=True, doubt=doubt, rows=_predicted(path))
    except (StoreError, StopIteration):
        return Said(opened=True, doubt=doubt, rows=None)


def _damaged(whole: Path, folder: Path, rng: random.Random, page_size: int) -> Path:
    """A copy in which something that was written differs."""
    folder.mkdir()
    path = Path(shutil.copy(whole, folder / "db.h2.db"))
    content = bytearray(path.read_bytes())
    pages = [
        number
        for number in range(3, len(content) // page_size)
        if any(content[number * page_size : (number + 1) * page_size])
    ]
    for _ in range(rng.choice((1, 1, 1, 2))):
        at = rng.choice(pages) * page_size
        inside = at + rng.randrange(min(page_size, rng.choice((16, 64, page_size))))
        size = rng.choice((1, 4, 16, 100))
        kind = rng.randrange(6)
        if kind == 0:
            content[inside] ^= 1 << rng.randrange(8)
        elif kind == 1:
            content[at : at + page_size] = bytes(page_size)
        elif kind == 2:
            content[inside : inside + size] = bytes(len(content[inside : inside + size]))
        elif kind == 3:
            other = rng.choice(pages) * page_size
            content[at : at + page_size] = content[other : other + page_size]
        elif kind == 4 and inside + 4 <= len(content):
            struct.pack_into(">i", content, inside, rng.choice(NUMBERS))
        else:
            content[inside] = rng.randrange(256)
    path.write_bytes(content)
    return path
