"""A process that appends to a shared log and notes what was acknowledged.

Usage: worker.py LOG NOTES THREADS RECORDS [STOP_AT]. Each thread appends RECORDS records, 0 for no
end, and then writes a line "lsn body" to NOTES. Lines on standard input: "go" begins, "quit" ends
after the appends that are under way. With STOP_AT the process stops itself before that change of a
file, counted from 1, that it makes as the leader.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

from tallystick.errors import TallystickError
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.shared.log import SharedTallyLog

SETTINGS = Settings(segment_size=64 << 10, idle_mark_s=0.05)


def stop_before(number: int) -> Callable[[str], None] | None:
    """Return what stops this process before its change of that number."""
    if not number:
        return None
    changes = iter(range(1, 1 << 60))

    def before(_: str) -> None:
        if next(changes) == number:
            os.kill(os.getpid(), signal.SIGSTOP)

    return before


def main(path: str, notes: str, threads: int, records: int, stop_at: int) -> None:
    log = SharedTallyLog(path, settings=SETTINGS, before=stop_before(stop_at))
    sink = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    print("ready", flush=True)  # noqa: T201 - read by the test
    quitting = threading.Event()

    def run(thread: int) -> None:
        number = 0
        while not quitting.is_set() and (not records or number < records):
            number += 1
            body = b"%d-%d-%d" % (os.getpid(), thread, number) + bytes(number * 37 % 300)
            lsn = log.append_durably(body)
            os.write(sink, b"%d %s\n" % (lsn, body.rstrip(b"\0")))

    def guarded(thread: int) -> None:
        try:
            run(thread)
        except TallystickError as error:
            os.write(sink, f"error {type(error).__name__}: {error}\n".encode())

    running = [threading.Thread(target=guarded, args=(number,)) for number in range(threads)]
    sys.stdin.readline()
    for one in running:
        one.start()
    if not records:
        sys.stdin.readline()
        quitting.set()
    for one in running:
        one.join()
    log.close()
    print("closed", flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *[int(one) for one in [*sys.argv[3:], "0"][:3]])
