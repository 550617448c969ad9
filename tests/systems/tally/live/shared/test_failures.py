"""A disk that fails under the leader of a shared log, a full one, and damage."""

from __future__ import annotations

import errno
import itertools
import json
from functools import partial
from pathlib import Path

import pytest

from tallystick.errors import (
    CorruptLogError,
    LogFullError,
    LogPoisonedError,
    LogUnreadableError,
    LogWriteError,
)
from tallystick.services.journal import Journal
from tallystick.storage.files import File
from tallystick.storage.local import LocalFileSystem
from tallystick.storage.shared import epochs
from tallystick.storage.shared.client import Cut
from tallystick.storage.shared.mailbox import REQUEST_MAX
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import CONTROL_NAME, segment_name
from tallystick.systems.tally.live.roles.journal import SharedTallyJournal
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.shared.batches import ITEMS_MAX, decode_error
from tallystick.systems.tally.live.shared.log import SharedTallyLog
from tests.systems.tally.live.shared.kit import check

_SETTINGS = Settings(segment_size=64 << 10, idle_mark_s=None, preallocate=False)


class _Disk:
    """Fails all changes of one name, once it is told to."""

    def __init__(self) -> None:
        self.failing = ""
        self.error = errno.EIO

    def __call__(self, change: str) -> None:
        if change == self.failing:
            raise OSError(self.error, "told to")


@pytest.mark.parametrize("change", ["pwrite", "datasync"])
def test_after_a_failed_write_or_sync_no_process_gets_an_answer_until_it_reopens(
    tmp_path: Path, change: str
) -> None:
    path, disk = str(tmp_path / "log"), _Disk()
    leader = SharedTallyLog(path, settings=_SETTINGS, before=disk)
    follower = SharedTallyLog(path, settings=_SETTINGS)
    acknowledged = {b"one": follower.append_durably(b"one")}
    disk.failing = change
    with pytest.raises(LogPoisonedError):
        follower.append_durably(b"two")
    for log in (leader, follower):
        with pytest.raises(LogPoisonedError):
            log.append_durably(b"three")
    again = SharedTallyLog(path, settings=_SETTINGS)
    acknowledged[b"four"] = again.append_durably(b"four")
    for log in (leader, follower):
        with pytest.raises(LogPoisonedError):
            log.append_durably(b"five")
        log.close()
    acknowledged[b"six"] = again.append_durably(b"six")
    again.close()
    assert check(tmp_path / "log", acknowledged) in (3, 4)


def test_a_leader_that_fails_before_it_is_ready_hides_nothing_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "log")
    first = SharedTallyLog(path, settings=_SETTINGS)
    reader = Journal(path, shared=True, settings=_SETTINGS)
    appended = [first.append_durably(b"one"), first.append_durably(b"two")]
    first.close()
    claimed = epochs.claim(path, epochs.numbers(path)[-1] + 1)
    assert claimed is not None
    claimed.enter(epochs.Phase.FAILED)
    claimed.close()
    assert [one.sequence for one in reader.replay(from_lsn=1)] == appended
    reader.close()


@pytest.mark.parametrize(
    "request_",
    [
        b'C["refusals", {}]',
        b'C["_call_roll", {}]',
        b'C["roll", {"member": 1}]',
        b'C["reclaim", {}]',
        b'C["reclaim", {"checkpoint_lsn": "all"}]',
        b'C["reclaim", {"checkpoint_lsn": [1]}]',
        b'C["reclaim", {"checkpoint_lsn": 9223372036854775808}]',
        b'C["roll"]',
        b"C[7, {}]",
        b"C{}",
        b"C\xff",
        b"C" + b"[" * 20_000,
    ],
)
def test_a_call_that_there_is_not_is_refused_and_all_go_on(tmp_path: Path, request_: bytes) -> None:
    path = str(tmp_path / "log")
    leader = SharedTallyLog(path, settings=_SETTINGS)
    follower = SharedTallyLog(path, settings=_SETTINGS)
    before = follower.last_segment
    answer = follower._client.ask(request_)
    assert isinstance(answer, bytes)
    assert isinstance(decode_error(answer), LogWriteError)
    assert follower.append_durably(b"one") == leader.append_durably(b"two") - 1
    assert follower.last_segment == before
    follower.close()
    leader.close()


@pytest.mark.parametrize("name", ["LogFullError", "json", "copy_error", "__builtins__", "Path"])
def test_an_error_that_there_is_not_is_a_log_write_error(name: str) -> None:
    answer = b"E" + json.dumps([name, "text", "", "", ""]).encode()
    error = decode_error(answer)
    assert type(error).__name__ == (name if name == "LogFullError" else "LogWriteError")


def test_a_full_disk_refuses_what_has_no_room_and_all_go_on(tmp_path: Path) -> None:
    path, disk = str(tmp_path / "log"), _Disk()
    leader = SharedTallyLog(path, settings=_SETTINGS, before=disk)
    follower = SharedTallyLog(path, settings=_SETTINGS)
    acknowledged = {b"one": follower.append_durably(b"one")}
    disk.failing, disk.error = "create", errno.ENOSPC
    for log in (leader, follower):
        with pytest.raises(LogFullError, match="no space"):
            for _ in range(5):
                log.append_durably(bytes(30_000) + b"large")
    acknowledged[b"small"] = follower.append_durably(b"small")
    disk.failing = ""
    acknowledged[b"x" * 30_000] = follower.append_durably(b"x" * 30_000)
    follower.close()
    leader.close()
    with SharedTallyLog(path, settings=_SETTINGS) as log:
        lsns = sorted(acknowledged.values())
        assert log.durable_lsn == lsns[-1]


def test_a_transaction_of_which_a_part_was_refused_is_not_committed_with_the_rest(
    tmp_path: Path,
) -> None:
    path, disk = str(tmp_path / "log"), _Disk()
    journal = SharedTallyJournal(SharedTallyLog(path, settings=_SETTINGS, before=disk))
    disk.failing, disk.error = "create", errno.ENOSPC
    number = journal.new_transaction()
    for record_id in range(ITEMS_MAX + 9):  # handed over in two parts; for the first is no room
        journal.add_in(number, record_id, bytes(100))
    with pytest.raises(LogFullError):
        journal.commit(number).wait()
    disk.failing = ""
    assert journal.live_ids() == set()
    journal.close()


def test_records_that_were_written_before_others_found_no_room_are_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SharedTallyLog(str(tmp_path / "log"), settings=_SETTINGS) as log:
        ask, room = log._client.ask, [True]

        def ask_once(request: bytes) -> bytes | Cut:
            if not room:
                raise LogFullError("told to")
            room.clear()
            return ask(request)

        add = partial(UnplacedRecord, Code.ADD, b"", None)
        tickets = [log.submit(add(record_id)) for record_id in range(ITEMS_MAX + 1)]
        with monkeypatch.context() as patch:
            patch.setattr(log._client, "ask", ask_once)
            assert tickets[0].wait() == 1
        assert tickets[-2].wait() == ITEMS_MAX
        with pytest.raises(LogFullError):
            tickets[-1].wait()


@pytest.mark.parametrize(
    ("call", "error"),
    [("allocate", errno.ENOSPC), ("open_file", errno.EMFILE), ("names", errno.EMFILE)],
)
def test_without_room_to_lead_what_is_handed_over_is_refused_and_all_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    path = str(tmp_path / "log")
    leader = SharedTallyLog(path, settings=_SETTINGS)
    follower = SharedTallyLog(path, settings=_SETTINGS)
    assert follower.append_durably(b"one") == 1
    leader.close()

    def refused(*_: object) -> None:
        raise OSError(error, "told to")

    with monkeypatch.context() as patch:
        patch.setattr(f"tallystick.storage.shared.kernel.{call}", refused)
        with pytest.raises(LogFullError, match="leading the shared log"):
            follower.append_durably(b"refused")
    assert follower.append_durably(b"two") == 2
    follower.close()


def test_a_disk_that_is_full_while_the_leader_keeps_house_or_closes_takes_the_log_from_nobody(
    tmp_path: Path,
) -> None:
    path, disk = str(tmp_path / "log"), _Disk()
    leader = SharedTallyLog(path, settings=_SETTINGS, before=disk)
    follower = SharedTallyLog(path, settings=_SETTINGS)
    follower.roll()  # nothing in the segment before is needed
    assert leader._leader is not None
    service = leader._leader._service
    disk.failing, disk.error = "pwrite", errno.ENOSPC  # of the control block, on some disks
    service.keep_house()
    disk.failing = ""
    assert follower.append_durably(b"one") == 1
    disk.failing = "pwrite"
    leader.close()
    assert follower.append_durably(b"two") == 2
    follower.close()


def test_without_a_descriptor_a_batch_is_refused_and_all_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is larger than a mailbox is handed over in a file."""
    path, large = str(tmp_path / "log"), bytes(REQUEST_MAX)
    leader = SharedTallyLog(path, settings=_SETTINGS)
    follower = SharedTallyLog(path, settings=_SETTINGS)

    def refused(name: str, _: int) -> None:
        raise OSError(errno.EMFILE, "Too many open files", name)

    for log in (leader, follower):
        with monkeypatch.context() as patch:
            patch.setattr("tallystick.storage.shared.kernel.open_file", refused)
            with pytest.raises(LogFullError, match="no file descriptor for a batch"):
                log.append_durably(large)
        assert log.append_durably(b"small")
        assert log.append_durably(large)
    follower.close()
    leader.close()


def test_damage_is_refused_by_whoever_would_lead_and_nothing_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with SharedTallyLog(str(path), settings=_SETTINGS) as log:
        for _ in range(5):
            log.append_durably(bytes(600))
    segment = path / segment_name(1)
    data = bytearray(segment.read_bytes())
    data[8192 + 300] ^= 1
    segment.write_bytes(data)
    for _ in range(2):
        with pytest.raises(CorruptLogError, match="acknowledged"):
            SharedTallyLog(str(path), settings=_SETTINGS)
    assert segment.read_bytes() == data


class _Unreadable(LocalFileSystem):
    """Fails the opening of a control block of this number, its own or that of its held folder."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self.left = [fails]

    def open(self, path: str, *, write: bool = True) -> File:
        if path.endswith(CONTROL_NAME):
            self.left[0] -= 1
            if self.left[0] == 0:
                raise OSError(errno.EMFILE, "no descriptor is left", path)
        return super().open(path, write=write)


def test_a_control_block_that_cannot_be_opened_is_told_and_takes_no_epoch_back(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "log")
    for _ in range(3):
        SharedTallyLog(path, settings=_SETTINGS).close()
    epoch, refused = 3, 0
    for number in itertools.count(1):
        fs = _Unreadable(number)
        try:
            log = SharedTallyLog(path, settings=_SETTINGS, fs=fs)
        except LogUnreadableError:
            refused += 1
        else:
            assert log._client.current().number > epoch
            epoch = log._client.current().number
            log.close()
        if fs.left[0] > 0:
            break
    assert refused > 1
