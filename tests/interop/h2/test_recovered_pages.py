"""A database of the real H2 with a log that was not replayed is recovered by our `PageLog`.

H2 is ended in the middle of its work; of the file that it leaves one copy is opened by H2, and
another one is recovered by us: undo images go to its pages, committed rows to a handler. Both
must come to the same tables; and H2 must come to them from the pages that we have put back, too.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tallystick.systems.h2.engine.recovery import ALLOCATE_STAGE, REDO_STAGE, UNDO_STAGE
from tallystick.systems.h2.engine.tables import Tables, UndonePages
from tallystick.systems.h2.format.numbers import decode_var_int
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.types import decode_value
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.log import PageLog
from tests.interop.h2.test_h2 import Rows, _classpath, h2, table_of
from tests.interop.java import run_java

PAGE_SIZES = pytest.mark.parametrize("page_size", [512, 2048, 4096])


@dataclass
class Redone:
    """A `RecoveryHandler` that plays stage 2 on the rows of one table.

    ``undone`` counts the pages put back by stage 0, which go to the file itself.
    """

    table: int
    store: PageStoreFile
    rows: Rows
    undone: list[int] = field(default_factory=list)

    def undo_page(self, page: int, image: bytes | None) -> None:
        self.store.write_page(page, image or bytes(self.store.page_size))
        self.undone.append(page)

    def redo_add(self, table: int, key: int, row: bytes) -> None:
        if table == self.table:
            assert key not in self.rows, "an added row is new"
            self.rows[key] = _name(row)

    def redo_remove(self, table: int, key: int) -> None:
        if table == self.table:
            del self.rows[key]

    def redo_truncate(self, table: int) -> None:
        if table == self.table:
            self.rows.clear()


def _name(row: bytes) -> str:
    """The second column of a stored row."""
    columns, at = decode_var_int(row, 0)
    assert columns == 2
    _, at = decode_value(row, at, Zone())
    name, at = decode_value(row, at, Zone())
    assert at == len(row)
    return "" if name is None else str(name.text)


def rows_of_pages(store: PageStoreFile, table: int) -> Rows:
    """The rows of a table as the pages of the file have them, log or no log."""
    tables = Tables(UndonePages(store.view()), Zone())
    tables.open_meta()
    found = tables.rows(tables.meta[table].root)
    return {key: "" if name is None else str(name.text) for key, (_, name) in found}


def recovered(path: Path) -> Redone:
    """The three stages on this file; the log stays in it, as it was."""
    table = table_of(path)
    store = PageStoreFile(str(path))
    log = PageLog(store)
    log.open_for_reading()
    handler = Redone(table, store, {})
    log.recover(UNDO_STAGE, handler)  # an empty log, too: H2 may be ended right after a checkpoint
    store.sync()
    log.recover(ALLOCATE_STAGE)
    handler.rows = rows_of_pages(store, table)
    log.recover(REDO_STAGE, handler)
    log.recover_end()
    store.close()
    return handler


def killed(folder: Path, page_size: int, seed: int) -> Path:
    """A database whose H2 was ended in the middle of its work."""
    path = folder / "db.h2.db"
    h2("create", path, page_size)
    chance = random.Random(seed)
    for _ in range(chance.randrange(1, 3)):  # also over a log that H2 itself has replayed
        run_java(
            "KilledH2", path, chance.randrange(1 << 30), chance.randrange(400),
            classpath=_classpath(),
        )  # fmt: skip
    return path


def rows_of_h2(path: Path) -> Rows:
    """The rows after the real recovery of this file."""
    lines = run_java("KilledH2", path, classpath=_classpath()).splitlines()
    return {int(number): name for number, _, name in (line.partition("\t") for line in lines)}


def check(folder: Path, page_size: int, seed: int) -> int:
    """One kill; returns how many pages our recovery has put back."""
    path = killed(folder, page_size, seed)
    theirs, ours = (Path(shutil.copy(path, folder / f"{name}.h2.db")) for name in ("h2", "ours"))
    expected = rows_of_h2(theirs)
    handler = recovered(ours)
    assert handler.rows == expected, f"seed {seed}"
    again = recovered(ours)  # interrupted or not, it may be done again
    assert again.rows == expected, f"seed {seed}"
    assert rows_of_h2(ours) == expected, f"seed {seed}"
    return len(handler.undone)


@pytest.mark.interop
@PAGE_SIZES
def test_we_recover_a_killed_database_to_what_h2_recovers(page_size: int, tmp_path: Path) -> None:
    """Of some kills: on a busy machine H2 may be ended before it has written any page again."""
    for seed in range(page_size, page_size + 8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        if check(folder, page_size, seed) > 0:
            return
    pytest.fail("no kill left pages to put back")


@pytest.mark.soak
@PAGE_SIZES
def test_we_recover_as_h2_does_at_many_kills(page_size: int, tmp_path: Path) -> None:
    pages = 0
    for seed in range(25):
        folder = tmp_path / str(seed)
        folder.mkdir()
        pages += check(folder, page_size, seed)
    assert pages > 100
