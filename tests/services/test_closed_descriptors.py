"""Other code of the process closes descriptors by their numbers, and opens files that get these.

Daemons do so (``os.closerange``), and a library that closes one twice. Nothing that is written then
is acknowledged, nothing of ours gets into the other files, and these are not closed by ours. A
service that starts without standard descriptors has none of its files there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMON = """
import os, sys
from tallystick.errors import TallystickError

PATH, KIND = sys.argv[1:]

def through(service, write):
    # Returns what was acknowledged, of two writes.
    write(1)
    highest = max(map(int, os.listdir("/proc/self/fd"))) + 1
    os.closerange(3, highest)
    others = [open(f"{PATH}.{number}", "w+b", buffering=0) for number in range(highest)]
    for number in (2, 3):
        try:
            write(number)
        except (TallystickError, OSError) as error:
            assert KIND == "shared" or "closed the file" in str(error), error
        else:
            raise AssertionError("acknowledged")
    try:
        service.close()
    except (TallystickError, OSError):
        pass
    for number, other in enumerate(others):
        assert os.fstat(other.fileno()).st_size == 0, number
        other.write(b"it is open")
"""

WITHOUT_STANDARD = """
import fcntl, os, sys

PATH, KIND = sys.argv[1:]
sys.stderr = open(fcntl.fcntl(2, fcntl.F_DUPFD, 50), "w")
os.closerange(0, 3)

def through(service, write):
    write(1)
    assert {os.readlink(f"/proc/self/fd/{number}") for number in range(3)} == {os.devnull}
    service.close()
"""

JOURNAL = """
from tallystick.services.journal import Journal
def opened():
    return Journal(PATH, shared=KIND == "shared")
journal = opened()
through(journal, lambda number: journal.append(b"%d" % number))
with opened() as journal:
    journal.append(b"4")
    assert [one.body for one in journal.replay()] == [b"1", b"4"]
"""

PAGE_STORE = """
from tallystick.services.page_store import PageStore
def put(number):
    with store.begin() as tx:
        tx.table("t")[number] = b"row"
store = PageStore(PATH, system=KIND)
store.create_table("t")
through(store, put)
with PageStore(PATH, system=KIND) as store:
    put(4)
    with store.begin(read_only=True) as tx:
        assert list(tx.table("t")) == [1, 4]
"""

WRITE_BEHIND = """
from tallystick.services.write_behind import WriteBehind
from tests.services.write_behind.kit import Recorder, put, quick
def opened():
    return WriteBehind(
        PATH, {"store": target}, system=KIND, settings=quick(close_timeout=0.2),
        on_incomplete="replay",
    )
target = Recorder()
behind = opened()
through(behind, lambda number: behind.commit([put(b"k", b"row")], str(number)))
with opened() as behind:
    behind.commit([put(b"k", b"row")], "4")
    assert behind.drain(30.0)
assert {one.reference for one in target.applied} == {"1", "4"}
"""


of_each_service = pytest.mark.parametrize(
    ("kind", "program"),
    [
        ("alone", JOURNAL), ("shared", JOURNAL), ("tally", PAGE_STORE), ("h2", PAGE_STORE),
        ("tally", WRITE_BEHIND), ("cloudtran", WRITE_BEHIND),
    ],
    ids=["journal", "shared", "pages", "pages-h2", "write-behind", "write-behind-cloudtran"],
)  # fmt: skip


@pytest.mark.sampled(3)
@of_each_service
def test_nothing_is_written_by_a_number_that_another_file_has_got(
    kind: str, program: str, tmp_path: Path
) -> None:
    _run(COMMON + program, tmp_path, kind)


@pytest.mark.sampled(3)
@of_each_service
def test_without_standard_descriptors_no_file_of_ours_gets_their_numbers(
    kind: str, program: str, tmp_path: Path
) -> None:
    _run(WITHOUT_STANDARD + program, tmp_path, kind)


def _run(program: str, tmp_path: Path, kind: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(tmp_path / "log"), kind]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
