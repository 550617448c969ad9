"""A write and a sync to give to a `GroupWriter`, which record what it does with them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class SlowDisk:
    """Remembers groups and syncs; fails at call number ``fail_at``.

    A sync takes ``seconds``, and as long as ``free`` is not set.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.groups: list[list[int]] = []
        self.synced = 0
        self.threads: list[threading.Thread] = []
        self.calls = 0
        self.fail_at: int | None = None
        self.error: Callable[[], BaseException] = lambda: OSError(5, "Input/output error")
        self.free = threading.Event()
        self.free.set()
        self._busy = threading.Lock()

    @property
    def items(self) -> list[int]:
        return [item for group in self.groups for item in group]

    @property
    def durable(self) -> list[int]:
        return [item for group in self.groups[: self.synced] for item in group]

    def write(self, items: list[int]) -> range:
        with self._alone():
            first = len(self.items)
            self.groups.append(list(items))
            return range(first, first + len(items))

    def sync(self) -> None:
        with self._alone():
            count = len(self.groups)
            time.sleep(self.seconds)
            assert self.free.wait(60)
            self.synced = count

    def _alone(self) -> threading.Lock:
        assert not self._busy.locked(), "two calls at once"
        self.threads.append(threading.current_thread())
        self.calls += 1
        if self.calls == self.fail_at:
            raise self.error()
        return self._busy
