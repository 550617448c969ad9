"""Whoever deletes the lock file of an open log lets nobody in: the folder is locked, too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tallystick.errors import LogLockedError
from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.storage.shared import members

_OWNER = """
import sys
from tallystick import Journal
with Journal(sys.argv[1], shared=sys.argv[2] == "shared") as journal:
    for line in sys.stdin:
        print(journal.append(line.encode()), flush=True)
"""


@contextmanager
def _owner(folder: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that has the log open, and appends each line that it is given."""
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(folder), how],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert _append(process, "one") == "1\n"
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def _append(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return process.stdout.readline()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["alone", "shared"])
@pytest.mark.parametrize("cleaned", ["deleted", "replaced"])
def test_a_log_whose_lock_file_was_deleted_has_one_owner_still(
    tmp_path: Path, how: str, cleaned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "LOCK_WAIT_S", 0.1)
    with _owner(tmp_path, how) as process:
        (tmp_path / "lock").unlink()  # as `rsync --delete`, or a cleaner of old files
        if cleaned == "replaced":
            (tmp_path / "lock").touch()
        for _ in range(2):
            with pytest.raises(LogLockedError, match=r"its lock file was deleted|open already"):
                Journal(tmp_path)
        if how == "alone":
            with pytest.raises(LogLockedError, match="has the log open alone"):
                Journal(tmp_path, shared=True)
            expected = [b"one\n", b"two\n"]
        else:
            with Journal(tmp_path, shared=True) as member:  # one more of the same log
                assert member.append(b"member") == 2
            expected = [b"one\n", b"member", b"two\n"]
        assert _append(process, "two") == f"{len(expected)}\n"
    with closing(Journal(tmp_path)) as journal:
        assert [one.body for one in journal.replay()] == expected


def test_a_log_can_be_opened_as_soon_as_its_owner_has_closed_it(tmp_path: Path) -> None:
    for number in range(5):
        with Journal(tmp_path / "journal") as journal:
            assert journal.append(b"one") == number + 1
        PageStore(tmp_path / "store").close()
