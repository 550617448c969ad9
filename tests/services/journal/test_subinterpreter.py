"""A journal in an interpreter beside the main one: a web server may have one per application."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick import Journal

_CODE = """
import sys
sys.path[:] = {path!r}
from concurrent.futures import ThreadPoolExecutor
from tallystick import Journal
with Journal({log!r}, shared={shared}) as journal:
    assert journal.append(b"one") == 1
    with journal.transaction() as tx:
        tx.add(1, b"two")
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(journal.append, [b"three"] * 20))) == 20
print("closed")
"""
_RUN = "import _xxsubinterpreters as s, sys; s.run_string(s.create(isolated=False), sys.argv[1])"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("pure", ["", "1"])
def test_a_journal_works_and_closes_in_a_subinterpreter(
    tmp_path: Path, pure: str, shared: bool
) -> None:
    pytest.importorskip("_xxsubinterpreters", reason="later versions have another module")
    log = str(tmp_path / "log")
    done = subprocess.run(
        [sys.executable, "-c", _RUN, _CODE.format(path=sys.path, log=log, shared=shared)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TALLYSTICK_PURE": pure},
    )
    assert done.stdout == "closed\n", done.stderr[-2000:]
    with Journal(log) as journal:
        assert len(list(journal.replay())) == 23
        assert [one.record_id for one in journal.live_records()] == [1]
