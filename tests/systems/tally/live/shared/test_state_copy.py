"""A new leader knows what the last one knew, and reads only what came after."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import LogPoisonedError
from tallystick.records import Xid
from tallystick.services.journal import Journal
from tallystick.storage.shared import kernel
from tallystick.storage.shared.epochs import Epoch, Phase
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.items import UnplacedEnding
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.shared.log import SharedTallyLog
from tallystick.systems.tally.live.shared.replica import Replica
from tallystick.systems.tally.live.shared.state_copy import StateCopies, last_copy
from tallystick.systems.tally.read import scan
from tallystick.systems.tally.read.state import LogState
from tests.systems.tally.live.shared.kit import leader_of, wait_for, workers

_SETTINGS = Settings(segment_size=64 << 10, idle_mark_s=None, preallocate=False)


def content(state: LogState) -> dict[str, Any]:
    """All of a state that later records or reclaiming can ask for."""
    found = dict(vars(state))
    found["_live_in"] = {segment: n for segment, n in state._live_in.items() if n > 0}
    return found


def write_some_of_everything(log: SharedTallyLog, first_key: int) -> None:
    """Leave live records, open and prepared transactions, decisions and entries in the log."""
    number = log.new_transaction()
    for key in range(first_key, first_key + 20):
        log.submit(UnplacedRecord(Code.ADD, b"row %d" % key, None, key))
    log.submit(UnplacedRecord(Code.UPDATE, b"again", None, first_key))
    log.submit(UnplacedRecord(Code.DELETE, b"", None, first_key + 1))
    log.submit(UnplacedRecord(Code.ADD, b"prepared", number, first_key + 100))
    log.submit(UnplacedEnding(Code.PREPARE, number, Xid(1, b"g%d" % first_key, b"b"), b"extra"))
    log.submit(UnplacedRecord(Code.ADD, b"open", log.new_transaction(), first_key + 101))
    gtrid = b"decision %d" % first_key
    log.submit(UnplacedRecord(Code.DECISION, _names(b"a", b"b"), None, None, 0, gtrid))
    log.submit(UnplacedRecord(Code.FINISH, _names(b"b"), None, None, 0, gtrid))
    log.submit(UnplacedRecord(Code.HEURISTIC, _names(b"a"), None, None, 0, b"odd" + gtrid)).wait()


def _names(*names: bytes) -> bytes:
    pieces = [len(names).to_bytes(2, "little")]
    pieces += [len(one).to_bytes(2, "little") + one for one in names]
    return b"".join(pieces)


@contextlib.contextmanager
def opened_segments(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Note the segments that are read whole."""
    opened: list[str] = []
    real = scan.open_segment

    def open_segment(file: Any, access: Any) -> Any:
        opened.append(file.path)
        return real(file, access)

    with monkeypatch.context() as patch:
        patch.setattr(scan, "open_segment", open_segment)
        yield opened


def fill(log: SharedTallyLog, segments: int) -> None:
    """Write plain records until so many segments were begun."""
    until = log.last_segment + segments
    while log.last_segment < until:
        for _ in range(30):
            ticket = log.append(bytes(1000))
        ticket.wait()


def state_of_leader(log: SharedTallyLog) -> LogState:
    assert log._leader is not None
    service: Any = log._leader._service
    found: LogState = service.log.between_groups(lambda state, _, __: state)
    return found


def two(tmp_path: Path) -> tuple[SharedTallyLog, SharedTallyLog]:
    path = str(tmp_path / "log")
    return SharedTallyLog(path, settings=_SETTINGS), SharedTallyLog(path, settings=_SETTINGS)


def wait_for_copy(log: SharedTallyLog, lsn: int) -> None:
    """Wait until there is a copy of the state after the record with this LSN."""

    def is_there() -> bool:
        known = last_copy(log.path, log.identity)
        return known is not None and known.lsn > lsn

    wait_for(is_there)


def take_over(leader: SharedTallyLog, follower: SharedTallyLog) -> None:
    leader.close()
    follower.append_durably(b"by the next leader")
    assert follower.leads


def test_a_new_leader_reads_only_the_segments_after_the_copy_and_knows_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = two(tmp_path)
    write_some_of_everything(follower, 0)
    fill(leader, 60)
    write_some_of_everything(leader, 1000)
    lsn = leader.append_durably(b"copied")
    fill(leader, 3)
    wait_for_copy(leader, lsn)
    write_some_of_everything(follower, 2000)
    follower.submit(UnplacedRecord(Code.DELETE, b"", None, 2)).wait()
    with opened_segments(monkeypatch) as opened:
        take_over(leader, follower)
    assert 1 <= len(opened) <= 10, "of more than 60"
    after = content(state_of_leader(follower))
    whole = Replica(follower.fs, follower.path, None).read(follower.durable_lsn)
    assert after == content(whole)
    assert len(after["live"]) == 3 * 19 - 1
    assert after["decisions"]
    assert after["heuristics"]
    assert [one for one in after["open"].values() if one.ending is not None]
    follower.close()
    with Journal(follower.path) as again:
        assert len(list(again.live_records())) == 3 * 20 - 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-20],
        lambda data: data.replace(b"[", b"{", 1),
        lambda _: b"",
        lambda _: b"\xff" * 100,
        lambda data: data[: len(data) // 2] + b"\n0\n",
    ],
)
def test_a_copy_that_is_not_whole_is_as_good_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[bytes], bytes]
) -> None:
    leader, follower = two(tmp_path)
    write_some_of_everything(follower, 0)
    fill(leader, 12)
    wait_for_copy(leader, 30)
    # From now on it makes no other.
    assert leader._leader is not None
    monkeypatch.setattr(StateCopies, "make_if_due", lambda _: None)
    (path,) = Path(leader.path).glob("shared.*.state")
    path.write_bytes(spoil(path.read_bytes()))
    assert last_copy(leader.path, leader.identity) is None
    with opened_segments(monkeypatch) as opened:
        take_over(leader, follower)
    assert len(opened) > 12
    whole = Replica(follower.fs, follower.path, None).read(follower.durable_lsn)
    assert content(state_of_leader(follower)) == content(whole)
    follower.close()


def test_a_copy_of_another_boot_or_another_log_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = two(tmp_path)
    fill(leader, 6)
    wait_for_copy(leader, 30)
    assert last_copy(leader.path, bytes(16)) is None
    monkeypatch.setattr(kernel, "boot_id", lambda: b"another")
    assert last_copy(leader.path, leader.identity) is None
    follower.close()
    leader.close()


def test_segments_that_were_freed_after_the_copy_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = two(tmp_path)
    write_some_of_everything(leader, 0)
    fill(leader, 8)
    wait_for_copy(leader, 30)
    monkeypatch.setattr(StateCopies, "make_if_due", lambda _: None)
    fill(leader, 4)
    for number in follower_open(follower):
        follower.submit(UnplacedRecord(Code.ROLLBACK, b"", number)).wait()
    for key in [0, *range(2, 20)]:
        follower.submit(UnplacedRecord(Code.DELETE, b"", None, key)).wait()
    for gtrid in (b"decision 0",):
        follower.submit(UnplacedRecord(Code.FINISH, _names(b"a"), None, None, 0, gtrid)).wait()
        follower.submit(UnplacedRecord(Code.SETTLE, b"", None, None, 0, b"odd" + gtrid)).wait()
    assert follower.reclaim(follower.next_lsn) > 2
    take_over(leader, follower)
    whole = Replica(follower.fs, follower.path, None).read(follower.durable_lsn)
    assert content(state_of_leader(follower)) == content(whole)
    follower.close()


def follower_open(log: SharedTallyLog) -> list[int]:
    with log.state() as state:
        return list(state.open)


def test_a_leader_that_was_deposed_gives_no_copy(tmp_path: Path) -> None:
    leader, follower = two(tmp_path)
    fill(leader, 1)
    assert leader._leader is not None
    service: Any = leader._leader._service
    epoch: Epoch = service._epoch
    before = set(os.listdir(leader.path))  # noqa: PTH208 - names
    epoch.deposed = 1
    copies = StateCopies(service.log, epoch.path, service._check, -9)
    with pytest.raises(Exception, match="another process leads"):
        copies.make_if_due()
    assert not {name for name in os.listdir(leader.path) if "state" in name} - before  # noqa: PTH208
    follower.append_durably(b"the log goes on")
    follower.close()
    leader.close()


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_a_leader_without_a_thread_for_its_copy_leaves_the_lead_to_another_one(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = two(tmp_path)
    fill(leader, 1)
    assert leader._leader is not None
    service: Any = leader._leader._service
    service._copies = StateCopies(service.log, service._epoch.path, service._check, -9)

    def refused(thread: threading.Thread) -> None:
        assert thread.name.startswith("copy of")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        service._copies.make_if_due()
    leader.close()
    assert follower.append_durably(b"the log goes on")
    follower.close()


def test_a_leader_that_cannot_even_abandon_its_log_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = two(tmp_path)
    assert leader._leader is not None
    epoch, service = leader._leader._epoch, leader._leader._service

    def broken() -> None:
        raise RuntimeError("a fault of ours")

    for name in ("keep_house", "close", "abandon"):
        monkeypatch.setattr(service, name, broken)
    heart = leader._leader._heart
    leader.close()
    assert heart._stop.is_set()
    assert epoch.phase == Phase.FAILED
    with pytest.raises(LogPoisonedError):
        follower.append_durably(b"refused, and no wait without an end")
    follower.close()


def test_the_state_of_an_encrypted_log_is_not_copied_in_plain_text(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    leader = SharedTallyLog(path, settings=_SETTINGS, key=lambda: bytes(32))
    fill(leader, 4)
    assert leader._leader is not None
    service: Any = leader._leader._service
    service.log.between_groups(lambda *_: None)
    copies = StateCopies(service.log, service._epoch.path, service._check, -9)
    copies.make_if_due()
    assert copies._thread is None
    leader.close()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_leader_of_a_log_of_gigabytes_is_replaced_at_once(tmp_path: Path) -> None:
    """Prints what a new leader costs, and an opening, which reads all of it."""
    log = tmp_path / "log"
    settings = Settings(segment_size=16 << 20, idle_mark_s=None)
    leader = SharedTallyLog(str(log), settings=settings)
    follower = SharedTallyLog(str(log), settings=settings)
    for _ in range(130):
        for ticket in [leader.append(os.urandom(256 << 10)) for _ in range(64)]:
            ticket.wait()
    wait_for_copy(leader, leader.next_lsn - 1000)
    leader.close()
    size = sum(path.stat().st_size for path in log.iterdir()) >> 20
    used = _processor_time(lambda: follower.append_durably(b"next"))
    follower.close()
    whole = _processor_time(lambda: Journal(log).close())
    print(f"{size} MiB: a new leader {used:.3f} s, an opening {whole:.3f} s")  # noqa: T201 - the figures
    assert size > 2000
    assert used < whole / 3


def _processor_time(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def test_workers_that_are_killed_leave_no_copies_behind(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with workers(tmp_path) as start:
        running = [start(2, 0) for _ in range(2)]
        for one in running:
            one.ready()
            one.tell("go")
        wait_for(lambda: list(log.glob("shared.*.state")))
        victim = next(one for one in running if one.pid == leader_of(log))
        running.remove(victim)
        victim.kill()
        size = running[0].notes.stat().st_size
        wait_for(lambda: running[0].notes.stat().st_size > size + 200)
        assert len(list(log.glob("shared.*.state"))) <= 1
        running[0].end()
    with Journal(log):
        pass
    with SharedTallyLog(str(log), settings=_SETTINGS):
        assert not list(log.glob("shared.*.state"))
