"""A lock that knows its owner is taken as a whole, or not at all."""

from __future__ import annotations

import pytest

from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.scheduling import threading


@pytest.mark.parametrize("take", [OwnedLock.acquire, OwnedLock.try_acquire, OwnedLock.__enter__])
def test_a_lock_is_free_after_a_call_that_had_no_memory_to_take_it(
    take: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = OwnedLock(nested_call_error)

    def no_memory() -> int:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(threading, "get_ident", no_memory)
        assert callable(take)
        with pytest.raises(MemoryError):
            take(lock)
    assert not lock.locked()
    assert lock.try_acquire()
    assert lock.owned
    lock.release()
