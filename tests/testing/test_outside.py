"""Real runs of the services, seen from outside: the model sees every call, and recovers them all.

The kernel's own record of a run is compared with what the seam was asked for, with what the model
of the disk has recorded of the same run in memory, and between the compiled core and its twin.
"""

from __future__ import annotations

import functools
import itertools
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tallystick.services.journal import Journal
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.coordinator_dir import open_coordinator_dir
from tallystick.testing import CrashState, RecordingFileSystem
from tests.services.page_store.test_crash_states import recover as recover_store
from tests.services.write_behind.test_crashes import recovered as recover_target
from tests.systems.tally.build import TINY, say
from tests.systems.tally.script import Script, recover, short_script
from tests.testing import outside_work
from tests.testing.outside import (
    Event,
    Kind,
    Shape,
    by_file,
    recorded,
    replayed,
    seam_calls,
    shapes,
    without_more_syncs,
    without_new_folders,
)

CORES = {"compiled": "", "pure": "1"}
UNSEEN = {"/a/outcomes", "/b/outcomes"}
"""Files that a service appends to, or writes without the seam: outcomes of branches."""


def run(service: str, core: str, folder: Path, **environment: str) -> list[Event]:
    """Return what a run of the service does."""
    command = [sys.executable, "-m", "tests.testing.outside_work", service, str(folder)]
    folder.mkdir(exist_ok=True)
    environment["TALLYSTICK_PURE"] = CORES[core]
    return recorded(command, folder, environment=environment)


def _calls(events: Iterable[Event]) -> list[Shape]:
    """The calls of a run that the model knows, without those that only make folders."""
    some = list(events)
    made = [one.path.removeprefix("/disk") for one in some if one.kind is Kind.MKDIR]
    return without_new_folders(shapes(replayed(some)), [path for path in made if path])


def _files(found: Iterable[Shape]) -> dict[str, list[Shape]]:
    return by_file(one for one in found if one[0] not in ("submitted", "acknowledged"))


# -- every change is seen -----------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("service", outside_work.SERVICES)
def test_the_seam_is_asked_for_every_change_that_the_kernel_makes(
    service: str, tmp_path: Path
) -> None:
    events = run(service, "pure", tmp_path, **{outside_work.SPIED: "1"})
    made = {one.path.removeprefix("/disk") for one in events if one.kind is Kind.MKDIR}
    asked = _files(without_new_folders(seam_calls(events), made))
    asked.pop(str(tmp_path), None)  # the folder around the disk is not recorded
    for path in UNSEEN:
        asked.pop(path, None)  # appended to: only the kernel knows at which offset
    done = _files(_calls(events))
    assert {path for path in done if path not in asked} <= UNSEEN
    assert {path: done.get(path) for path in asked} == asked


@pytest.mark.sampled(2)
@pytest.mark.parametrize("service", ["journal", "page_store", "write_behind"])
@pytest.mark.parametrize("core", CORES)
def test_the_model_records_what_the_kernel_does(
    service: str, core: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(outside_work.IN_TURNS, "1")
    fs = RecordingFileSystem()
    outside_work.work(service, fs, "", _text(fs.submitted), _text(fs.acknowledged))
    seen = shapes(replayed(run(service, core, tmp_path)))
    modelled = shapes(fs)
    if service == "write_behind":  # its target has a thread of its own
        made, known = _files(seen), _files(modelled)
        assert made.keys() == known.keys()
        for path, calls in known.items():
            assert without_more_syncs(made[path], calls) == calls
    else:
        assert without_more_syncs(seen, modelled) == modelled


def _text(mark: Callable[[str], None]) -> Callable[[object], None]:
    return lambda item: mark(str(item))


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("service", outside_work.SERVICES)
def test_the_compiled_core_makes_the_calls_of_its_twin(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(outside_work.IN_TURNS, "1")
    compiled, pure = (_calls(run(service, core, tmp_path / core)) for core in CORES)
    assert _files(compiled) == _files(pure)


def test_a_change_that_bypasses_the_model_is_noticed(tmp_path: Path) -> None:
    """A shared writable mapping, a link, a file opened for direct writes."""
    for number, code in enumerate(
        (
            "import mmap,sys; f=open(sys.argv[1],'w+b'); f.truncate(9); mmap.mmap(f.fileno(),9)",
            "import os,sys; open(sys.argv[1],'w').close(); os.link(sys.argv[1],sys.argv[1]+'2')",
            "import os,sys; os.open(sys.argv[1],os.O_CREAT|os.O_WRONLY|os.O_DSYNC)",
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        events = recorded([sys.executable, "-c", code, str(folder / "disk/file")], folder)
        with pytest.raises(AssertionError, match="does not know"):
            replayed(events)


# -- and recovery survives a crash after each ----------------------------------------------------


def _numbers(items: Iterable[object]) -> set[int]:
    return {int(str(item)) for item in items}


def _check_journal(state: CrashState, _: Path) -> None:
    least = max(_numbers(state.acknowledged), default=0)
    most = max(_numbers(state.submitted), default=0)
    assert recover(state.fs()) in _models()[least : most + 1], state.describe()


@functools.cache
def _models() -> list[dict[int, tuple[bytes, ...]]]:
    script = Script(Journal("/log", fs=RecordingFileSystem(), settings=TINY))
    short_script(script)
    return script.models


def _check_items(state: CrashState, found: set[int]) -> None:
    assert _numbers(state.acknowledged) <= found <= _numbers(state.submitted), state.describe()


def _check_store(state: CrashState, _: Path) -> None:
    _check_items(state, set(recover_store("tally", state.fs())))


def _check_target(state: CrashState, _: Path) -> None:
    _check_items(state, _numbers(recover_target("tally", state.fs())))


def _check_coordinator(state: CrashState, folder: Path) -> None:
    state.fs().write_to(folder)
    directory = open_coordinator_dir(folder / "tm", "node-1", None)
    try:
        decided = {int(gtrid[1:]) for gtrid in directory.decisions.open_decisions()}
        known = directory.closed.among({b"g%d" % number for number in range(8)})
    finally:
        directory.close()
    closed = {int(gtrid[1:]) for gtrid in known}
    for kind, found in (("d", decided | closed), ("c", closed)):
        acknowledged = {str(one) for one in state.acknowledged if str(one)[0] == kind}
        submitted = {str(one) for one in state.submitted if str(one)[0] == kind}
        assert acknowledged <= {f"{kind}{number}" for number in found}, state.describe()
        assert found <= {int(one[1:]) for one in submitted}, state.describe()


def _check_transactions(state: CrashState, folder: Path) -> None:
    state.fs().write_to(folder)
    journals = [Journal(folder / name, settings=TINY) for name in "ab"]
    resources = {name: one.as_resource(name) for name, one in zip("ab", journals, strict=True)}
    try:
        with TransactionManager(
            folder / "tm", resources, node="node-1", orphan_interval=0.0, recovery_interval=None
        ) as manager:
            left = {branch.why for branch in manager.recover().left}
            # Which outcomes a journal has written is not synced: their decisions stay open.
            assert all(why.startswith("decided and not listed") for why in left)
        one, other = ({record.record_id for record in log.live_records()} for log in journals)
    finally:
        for log in journals:
            log.close()
    assert one == other, f"a transaction in part: {one ^ other}; {state.describe()}"
    _check_items(state, one)


CHECKS = {
    "journal": _check_journal,
    "page_store": _check_store,
    "coordinator": _check_coordinator,
    "write_behind": _check_target,
    "transactions": _check_transactions,
}


SHORT = {"transactions": 4, "coordinator": 2}
"""Of runs with large files the short form tries one state of so many."""


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "limit", [pytest.param(4, id="short"), pytest.param(200, id="long", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("service", CHECKS)
def test_every_recorded_crash_state_is_recovered(
    service: str, core: str, limit: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fs = replayed(run(service, core, tmp_path / "run"))
    states, every = 0, SHORT.get(service, 1) if limit == 4 else 1
    for state in itertools.islice(fs.crash_states(limit=limit), 0, None, every):
        folder = tmp_path / str(states)
        CHECKS[service](state, folder)
        shutil.rmtree(folder, ignore_errors=True)
        states += 1
    say(capsys, f"{service}, {core}: {states} crash states of {fs.points} recorded calls")
    assert states > fs.points / 2 / every
