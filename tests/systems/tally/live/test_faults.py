"""Every fault point, for every n: what was acknowledged is there, and nothing else is believed."""

from __future__ import annotations

import errno

import pytest

from tallystick.errors import LogUnreadableError, TallystickError
from tallystick.services.journal import Journal
from tallystick.testing import (
    CHANGES,
    READS,
    FailedSync,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    every_fault,
)
from tests.systems.tally.build import FOLDER, TINY, say
from tests.systems.tally.script import Live, Script, recover, short_script


def _run(fs: FaultyFileSystem) -> tuple[list[Live], int]:
    """Run the script until the fault strikes; the models and the last step acknowledged."""
    done = [0]
    script = None
    try:
        script = Script(Journal(FOLDER, fs=fs, settings=TINY), after=done.append)
        short_script(script)
        script.journal.close()
    except (TallystickError, OSError):
        assert fs.struck, "an error without a fault"
    return (script.models if script else [{}]), done[-1]


def _check(fs: FaultyFileSystem) -> None:
    models, acknowledged = _run(fs)
    inner = fs.inner
    assert isinstance(inner, MemoryFileSystem)
    found = recover(MemoryFileSystem(_contents(inner)))
    assert found in models[acknowledged:], f"step {acknowledged} was acknowledged"


def _contents(fs: MemoryFileSystem) -> dict[str, bytes]:
    files = {}
    for name in fs.list(FOLDER):
        file = fs.open(f"{FOLDER}/{name}")
        files[f"{FOLDER}/{name}"] = file.pread(file.size(), 0)
        file.close()
    return files


@pytest.mark.parametrize(
    ("error", "partial"), [(errno.EIO, 0.0), (errno.ENOSPC, 0.5)], ids=["EIO", "ENOSPC"]
)
def test_every_change_that_fails(
    error: int, partial: float, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = 0
    faults = every_fault(
        MemoryFileSystem, lambda nth: Fault(nth, calls=CHANGES, error=error, partial=partial)
    )
    for fs in faults:
        _check(fs)
        tried += 1
    say(capsys, f"tally: {tried} failing changes with {errno.errorcode[error]}")
    assert tried > 100


@pytest.mark.parametrize("how", [FailedSync.ORDERED, FailedSync.REVERTED])
def test_every_sync_that_fails_and_forgets(how: FailedSync) -> None:
    for fs in every_fault(MemoryFileSystem, lambda nth: Fault(nth, calls={"datasync"}, sync=how)):
        _check(fs)


def test_every_read_that_fails_while_opening_leaves_the_log_as_it_was() -> None:
    inner = MemoryFileSystem()
    script = Script(Journal(FOLDER, fs=inner, settings=TINY))
    short_script(script)
    script.journal.close()
    before = _contents(inner)
    for nth in range(1, 100):
        fs = FaultyFileSystem(MemoryFileSystem(before), Fault(nth, calls=READS))
        try:
            Journal(FOLDER, fs=fs, settings=TINY).close()
        except (LogUnreadableError, OSError, TallystickError):
            assert fs.struck
            assert recover(MemoryFileSystem(_contents(fs.inner))) == script.models[-1]  # type: ignore[arg-type]
        if not fs.struck:
            return
    raise AssertionError("more than 99 reads to open a small log")


def test_short_writes_and_interrupted_calls_change_nothing() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), short_writes=True)
    script = Script(Journal(FOLDER, fs=fs, settings=TINY))
    short_script(script)
    script.journal.close()
    assert recover(MemoryFileSystem(_contents(fs.inner))) == script.models[-1]  # type: ignore[arg-type]
