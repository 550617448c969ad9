"""Claims, tables of ends, and names that are never replaced."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tallystick.errors import LogUnreadableError
from tallystick.storage.shared import epochs, kernel
from tallystick.storage.shared.epochs import Epoch, Phase
from tallystick.storage.shared.mailbox import REQUEST_MAX, Mailbox, waiting
from tallystick.storage.shared.members import Membership


def test_a_rename_never_replaces(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    with pytest.raises(FileExistsError):
        kernel.rename_new(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_text() == "b"
    kernel.rename_new(str(tmp_path / "a"), str(tmp_path / "c"))
    assert (tmp_path / "c").read_text() == "a"


def test_one_claims_an_epoch_and_an_older_one_is_claimed_by_nobody(tmp_path: Path) -> None:
    folder = str(tmp_path)
    first = epochs.claim(folder, 3)
    assert first is not None
    assert epochs.claim(folder, 3) is None
    assert epochs.claim(folder, 2) is None, "a newer one is there"
    assert epochs.numbers(folder) == [3]
    seen = epochs.open_epoch(folder, 3)
    assert seen is not None
    assert seen.is_led()
    assert not seen.is_over()
    first.close()
    assert seen.is_over(), "its leader's lock is free"


def test_a_later_epoch_deposes_the_earlier_ones_and_keeps_their_ends(tmp_path: Path) -> None:
    folder = str(tmp_path)
    first = epochs.claim(folder, 1)
    assert first is not None
    first.set_ends([(1, 10)])
    first.enter(Phase.READY)
    assert first.is_current()
    second = epochs.claim(folder, 2)
    assert second is not None
    assert epochs.depose(folder, 2) == (False, [(1, 10)])
    assert not first.is_current()
    first.close()
    assert epochs.depose(folder, 2) == (True, [(1, 10)])
    second.set_ends([(1, 10), (2, 25)])
    assert (second.end_of(0), second.end_of(1), second.end_of(2)) == (10, 25, None)
    epochs.remove_before(folder, 2)
    assert epochs.numbers(folder) == [2]
    second.set_ends([(number, number) for number in range(5, 500)])
    assert second.end_of(3) is None, "forgotten"
    assert second.end_of(400) == 401


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_keeps_neither_the_lead_nor_the_place_of_its_parent(tmp_path: Path) -> None:
    def nothing() -> None:
        """Make no log."""

    one, other = (Membership(str(tmp_path), "lock", b"", nothing) for _ in range(2))
    epoch = epochs.claim(str(tmp_path), 1)
    assert epoch is not None
    seen = Epoch(epoch.path)
    from_child, to_parent = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(to_parent, b"!")
        signal.pause()
    try:
        os.read(from_child, 1)
        assert seen.is_led()
        assert other.is_alive(one.number)
        epoch.close()
        one.close()
        assert not seen.is_led()
        assert not other.is_alive(one.number)
        other.close()
        alone = Membership(str(tmp_path), "lock", b"other settings", nothing)
        alone.close()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(from_child)
        os.close(to_parent)


def test_a_silent_leader_is_over_a_stopped_one_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = epochs.claim(str(tmp_path), 1)
    assert epoch is not None
    seen = Epoch(epoch.path)
    epoch.beat_ns -= int(1e9)
    assert not seen.is_over()
    monkeypatch.setattr(kernel, "is_stopped", lambda *_: True)
    assert seen.is_over()
    monkeypatch.undo()
    epoch.beat_ns -= int(epochs.SILENCE_S * 1e9)
    assert seen.is_over()


@pytest.mark.parametrize("size", [0, 1, REQUEST_MAX, REQUEST_MAX + 1, 1 << 20])
def test_a_request_arrives_whole_and_once(tmp_path: Path, size: int) -> None:
    epoch = epochs.claim(str(tmp_path), 1)
    assert epoch is not None
    member, leader = (Mailbox(other, 7) for other in (Epoch(epoch.path), epoch))
    assert waiting(epoch) == []
    number = member.publish(bytes(size))
    assert waiting(epoch) == [7]
    assert leader.request() == (number, bytes(size))
    leader.stage(number, b"answer")
    assert member.answer(number) is None
    assert member.staged(number) == b"answer"
    leader.give(number)
    assert member.answer(number) == b"answer"
    assert waiting(epoch) == []
    assert member.publish(b"next") == number + 1


def test_a_request_that_is_torn_has_not_arrived(tmp_path: Path) -> None:
    epoch = epochs.claim(str(tmp_path), 1)
    assert epoch is not None
    box = Mailbox(epoch, 0)
    box.publish(b"whole")
    epoch.bytes[epoch.box(0) + 8192] ^= 1
    assert box.request() is None


def test_shared_memory_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shared.1").write_bytes(bytes(100))
    with (
        pytest.raises(LogUnreadableError, match="another version, or damaged"),
        contextlib.closing(Epoch(str(tmp_path / "shared.1"))),
    ):
        pass
