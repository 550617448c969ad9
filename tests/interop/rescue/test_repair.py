"""What an original refuses, or loses, it opens with everything in the copy that `repair` made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.rescue import repair
from tests.interop.bitronix.original import original
from tests.interop.derby.real import derby, rows_of
from tests.interop.h2.test_h2 import Answer, h2, started
from tests.rescue.kit import change, content

pytestmark = pytest.mark.interop
PAGE = 2048
COMMITTING, COMMITTED = 8, 3
NAMES = ["jdbc/orders", "jms/queue"]
LONG_NAMES = [f"jdbc/a-resource-with-a-long-name-{number}" for number in range(20)]

# offset, bytes; the original refuses the file then, or goes by the other copy
H2_DAMAGE = {
    "page size": ([(48, b"\0\0\x08\1")], True),
    "text": ([(0, bytes(16))], True),
    "both headers": ([(PAGE + 9, b"\1"), (2 * PAGE, bytes(4))], True),
    "first header": ([(PAGE + 9, b"\1")], False),
    "second header": ([(2 * PAGE + 20, b"\1")], False),
}


@pytest.mark.parametrize("name", H2_DAMAGE)
def test_h2_opens_a_mended_file_with_every_row(name: str, tmp_path: Path) -> None:
    damage, refused = H2_DAMAGE[name]
    database = tmp_path / "db.h2.db"
    h2("create", database, PAGE)
    for offset, data in damage:
        change(database, offset, data)
    assert repair(database, tmp_path / "copy.h2.db").mends
    (mended,) = h2("report", tmp_path / "copy.h2.db")
    assert mended == Answer(started())
    (damaged,) = h2("report", database)
    assert damaged.opened is not refused


def test_derby_keeps_its_last_commit_with_a_control_file_made_from_its_mirror(
    tmp_path: Path,
) -> None:
    """Without it, and without log1.dat, it begins a new log and says nothing."""
    database = tmp_path / "db"
    grow = [f"sql:insert into n select id + {10 << k}, v from n" for k in range(11)]
    derby(
        database, "create", "sql:call SYSCS_UTIL.SYSCS_SET_DATABASE_PROPERTY("
        "'derby.storage.logSwitchInterval','100000')", "insert:1", "shutdown",
    )  # fmt: skip
    derby(database, *grow, "checkpoint", "insert:4", "checkpoint", "insert:7", "halt")
    assert not (database / "log/log1.dat").exists()
    for lock in database.glob("*.lck"):
        lock.unlink()
    (database / "log/log.ctrl").unlink()
    (mend,) = repair(database, tmp_path / "copy").mends
    assert mend.file == "log/log.ctrl"
    mended = rows_of(derby(tmp_path / "copy", "rows", "halt")["ROWS"])
    damaged = rows_of(derby(database, "rows", "halt")["ROWS"])
    assert mended == damaged | {7: "derby 7"}
    assert 7 not in damaged


@pytest.mark.parametrize("link", [True, False])
def test_derby_boots_the_copy_of_a_database_and_leaves_its_log_elsewhere_alone(
    link: bool, tmp_path: Path
) -> None:
    database, device = tmp_path / "db", tmp_path / "device"
    derby(database, "create", "insert:1", "insert:4", "halt")
    for lock in database.glob("*.lck"):
        lock.unlink()
    device.mkdir()
    (database / "log").rename(device / "log")
    if link:
        (database / "log").symlink_to(device / "log")
    else:
        settings = database / "service.properties"
        settings.write_bytes(f"logDevice={device}\n".encode() + settings.read_bytes())
    (device / "log/log.ctrl").write_bytes(b"")
    before = content(device)
    assert repair(database, tmp_path / "copy").exit_code == 0
    mended = rows_of(derby(tmp_path / "copy", "rows", "insert:7", "shutdown")["ROWS"])
    assert {1: "derby 1", 4: "derby 4"}.items() <= mended.items()
    assert content(device) == before


def test_bitronix_2_1_4_knows_every_decision_in_the_mended_copy(tmp_path: Path) -> None:
    """After its first change of files it opens the older one, and forgets what is open."""
    folder = tmp_path / "journal"
    folder.mkdir()
    model = {b"\0" * 12 + bytes((number,)): frozenset(NAMES) for number in (1, 2)}
    first, last = model
    with original(folder) as real:
        real.open()
        real.log(COMMITTING, first, NAMES)
        for number in range(700):
            key = number.to_bytes(16, "big")
            real.log(COMMITTING, key, LONG_NAMES)
            real.log(COMMITTED, key, LONG_NAMES)
        real.log(COMMITTING, last, NAMES)
        assert real.dangling() == model
        real.close()
    assert repair(folder, tmp_path / "copy").exit_code == 0
    for place, known in ((folder, False), (tmp_path / "copy", True)):
        with original(place) as real:
            real.open()
            assert (real.dangling() == model) is known
            real.halt()
