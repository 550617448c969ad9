"""Shared memory that something else has changed: a wait ends, and nothing is claimed beyond it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tallystick.errors import LogPoisonedError, LogWriteError
from tallystick.storage.shared import client, leader
from tallystick.storage.shared.epochs import REQUESTS, Epoch
from tallystick.storage.shared.mailbox import ANSWER, REQUEST, Mailbox
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.shared.log import SharedTallyLog

SETTINGS = Settings(segment_size=64 << 10, preallocate=False, idle_mark_s=None)


@pytest.fixture
def both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[SharedTallyLog, SharedTallyLog]]:
    monkeypatch.setattr(leader, "_ARRIVAL_S", 0.1)
    monkeypatch.setattr(client, "UNANSWERED_S", 0.3)
    path = str(tmp_path / "log")
    with (
        SharedTallyLog(path, settings=SETTINGS) as leads,
        SharedTallyLog(path, settings=SETTINGS) as member,
    ):
        member.append_durably(b"before")
        yield leads, member


def flipped(place: Callable[[Epoch, int], int], bit: int) -> Callable[[Mailbox], None]:
    """Return what flips a bit of an epoch's memory, at a place that depends on the member."""

    def flip(box: Mailbox) -> None:
        epoch, at = box._epoch, place(box._epoch, box._member)
        epoch.bytes[at] = epoch.bytes[at] ^ 1 << bit

    return flip


OF_REQUEST = {
    "a byte": lambda epoch, member: epoch.box(member) + REQUEST,
    "its length": lambda epoch, member: epoch.box(member),
    "where it stands": lambda epoch, member: epoch.box(member) + 7,
    "its checksum": lambda epoch, member: epoch.box(member) + 8,
    "its number": lambda _, member: 8 * (REQUESTS + member),
    "its number, high": lambda _, member: 8 * (REQUESTS + member) + 5,
}
OF_ANSWER = {
    "a byte": lambda epoch, member: epoch.box(member) + ANSWER,
    "its number": lambda epoch, member: epoch.box(member) + 16,
    "its length": lambda epoch, member: epoch.box(member) + 24,
    "its checksum": lambda epoch, member: epoch.box(member) + 32,
}


@pytest.mark.parametrize("bit", [0, 7])
@pytest.mark.parametrize("what", OF_REQUEST)
def test_a_damaged_request_ends_in_an_error_and_is_not_written(
    both: tuple[SharedTallyLog, SharedTallyLog],
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    bit: int,
) -> None:
    leads, member = both
    flip, publish = flipped(OF_REQUEST[what], bit), Mailbox.publish
    answer = leads._leader._answer  # type: ignore[union-attr]
    waiting = [True]

    def hold_back(members: list[int]) -> bool:
        return False if waiting[0] else answer(members)

    monkeypatch.setattr(leads._leader, "_answer", hold_back)  # so that it sees only the damaged one

    def publish_damaged(box: Mailbox, data: bytes) -> int:
        number = publish(box, data)
        flip(box)
        monkeypatch.setattr(Mailbox, "publish", publish)
        waiting[0] = False
        return number

    monkeypatch.setattr(Mailbox, "publish", publish_damaged)
    with pytest.raises((LogWriteError, LogPoisonedError)) as caught:
        member.append_durably(b"damaged")
    assert leads.append_durably(b"after") == 2, "nothing of it was written"
    if isinstance(caught.value, LogWriteError):
        assert "nothing of it was written" in str(caught.value)
        assert member.append_durably(b"again") == 3
    else:
        with pytest.raises(LogPoisonedError, match="does not answer"):
            member.append_durably(b"again")


@pytest.mark.parametrize("what", OF_ANSWER)
def test_a_damaged_answer_ends_in_an_error_that_claims_nothing(
    both: tuple[SharedTallyLog, SharedTallyLog], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    leads, member = both
    flip, give = flipped(OF_ANSWER[what], 0), Mailbox.give

    def give_damaged(box: Mailbox, number: int) -> None:
        flip(box)
        give(box, number)
        monkeypatch.setattr(Mailbox, "give", give)

    monkeypatch.setattr(Mailbox, "give", give_damaged)
    with pytest.raises(LogPoisonedError, match="durable or not"):
        member.append_durably(b"answered")
    assert leads.append_durably(b"after") == 3


def test_a_batch_whose_answer_is_forgotten_is_not_written_again(
    both: tuple[SharedTallyLog, SharedTallyLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    leads, member = both
    give = Mailbox.give

    def give_lost(box: Mailbox, number: int) -> None:
        monkeypatch.setattr(Mailbox, "give", give)
        give(box, number - 1)

    monkeypatch.setattr(Mailbox, "give", give_lost)
    assert member.append_durably(b"once") == 2
    assert leads.append_durably(b"after") == 3


def test_a_member_waits_as_long_as_the_leader_does_for_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "UNANSWERED_S", 0.01)
    looks: list[int] = []
    wait = Mailbox.wait

    def look(box: Mailbox, number: int, seconds: float) -> None:
        looks.append(number)
        wait(box, number, seconds)

    def before(change: str) -> None:
        if change == "datasync" and slow:
            slow.clear()
            seen = len(looks)
            while len(looks) < seen + 6:  # six looks of the member, some 0.3 seconds
                wait(Mailbox(leads._seen(), 255), 1, 0.01)

    slow: list[bool] = []
    path = str(tmp_path / "log")
    with (
        SharedTallyLog(path, settings=SETTINGS, before=before) as leads,
        SharedTallyLog(path, settings=SETTINGS) as member,
    ):
        monkeypatch.setattr(Mailbox, "wait", look)
        slow.append(True)
        assert member.append_durably(b"slow") == 1
        assert not slow, "it was held up in its sync"
