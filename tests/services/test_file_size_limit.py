"""A limit of the size of files (``ulimit -f``) that is reached, and raised again, loses nothing.

It is a full disk of one process: what cannot be written is refused, and the service goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMON = """
import resource, sys
from tallystick.errors import LogFullError

BODY = bytes(100_000)
HARD = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

def through(step):
    # Returns how many steps were refused, of some below the limit, at it, and after it.
    step(0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, HARD))
    refused = 0
    for number in range(1, 41):
        try:
            step(number)
        except LogFullError as error:
            assert "ulimit -f" in str(error), error
            refused += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (HARD, HARD))
    step(41)
    return refused
"""

JOURNAL = """
from tallystick.services.journal import Journal
kept = []
with Journal(sys.argv[1]) as journal:
    def step(number):
        body = b"%d " % number + BODY
        journal.append(body)
        kept.append(body)
    assert through(step) > 5
with Journal(sys.argv[1]) as journal:
    assert [one.body for one in journal.replay()] == kept
"""

PAGE_STORE = """
from tallystick.services.page_store import PageStore
kept = {}
with PageStore(sys.argv[1], cache_bytes=1 << 20, checkpoint_bytes=1 << 20) as store:
    store.create_table("t")
    def step(number):
        with store.begin() as tx:
            tx.table("t")[number] = b"%d " % number + BODY
        kept[number] = b"%d " % number + BODY
    assert through(step) > 5
with PageStore(sys.argv[1]) as store, store.begin(read_only=True) as tx:
    assert dict(tx.table("t")) == kept
"""

WRITE_BEHIND = """
from tallystick.services.write_behind import WriteBehind
from tests.services.write_behind.kit import Recorder, put, quick
target, kept = Recorder(), []
with WriteBehind(sys.argv[1], {"store": target}, settings=quick(close_timeout=30.0)) as behind:
    def step(number):
        behind.commit([put(b"%d" % number, BODY)], str(number))
        kept.append(str(number))
    assert through(step) > 5
assert {one.reference for one in target.applied} >= set(kept)
"""


@pytest.mark.parametrize("program", [JOURNAL, PAGE_STORE, WRITE_BEHIND])
def test_a_limit_of_the_size_of_files_refuses_and_poisons_nothing(
    program: str, tmp_path: Path
) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", COMMON + program, str(tmp_path / "log")]
    subprocess.run(command, env=environment, check=True, timeout=120)
