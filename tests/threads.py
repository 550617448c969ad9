"""Run something in another thread, and have its error here."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_thread(call: Callable[[], object]) -> None:
    """Run a call in a thread, and raise what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    if raised:
        raise raised[0]
