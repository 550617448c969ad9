"""What a program leaves to the interpreter's end: a generator, an object with a finalizer.

Python closes them when its other threads have ended. Nothing waits for those, and what was
acknowledged is there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.services.journal import Journal
from tests.services.leaks import ROOT

JOURNAL = """
def service():
    with Journal(PATH) as log:
        log.append(b"acknowledged")
        try:
            yield
        finally:
            log.append(b"late")
"""

SHARED = JOURNAL.replace("PATH", "PATH, shared=True")

SHARED_TRANSACTION = """
def service():
    with Journal(PATH, shared=True) as log:
        log.append(b"acknowledged")
        with log.transaction() as tx:
            tx.append(b"late")
            yield
"""

FINALIZER = """
class Service:
    def __init__(self):
        self.log = Journal(PATH, shared=True)
        self.log.append(b"acknowledged")
    def __next__(self):
        pass
    def __del__(self):
        self.log.append(b"late")
        self.log.close()
service = Service
"""

MANAGER = """
def service():
    with Journal(PATH) as log, TransactionManager(
        PATH + ".tm", {"log": log, "orders": f"sqlite:///{PATH}.db"}
    ) as tm:
        log.append(b"acknowledged")
        with tm.begin() as tx:
            tx["orders"].execute("CREATE TABLE late (id INTEGER)")
            tx["log"].add(7, b"late")
            yield
"""

SHARED_MANAGER = MANAGER.replace('".tm", {', '".tm", shared=True, resources={')

WRITE_BEHIND = """
def service():
    with WriteBehind(PATH + ".spool", {"shop": lambda entry: None}) as behind:
        with Journal(PATH) as log:
            log.append(b"acknowledged")
        with behind.begin(reference="late") as tx:
            tx.insert("orders", {"id": 8}, {"state": "new"})
            yield
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "program",
    [JOURNAL, SHARED, SHARED_TRANSACTION, FINALIZER, MANAGER, SHARED_MANAGER, WRITE_BEHIND],
    ids=["journal", "shared", "transaction", "finalizer", "manager", "managers", "write-behind"],
)
def test_what_is_left_to_the_end_of_the_interpreter_ends_with_it(
    program: str, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    code = f"""
import faulthandler
from tallystick import Journal, TransactionManager
from tallystick.services.write_behind import WriteBehind
faulthandler.dump_traceback_later(30, exit=True)
PATH = {str(path)!r}
{program}
left = service()
next(left)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    for line in ended.stderr.splitlines():
        if line.startswith(("tallystick.", "RuntimeError", "OSError")):
            assert "the interpreter ends" in line
    with Journal(path) as log:
        assert next(iter(log.replay())).body == b"acknowledged"
