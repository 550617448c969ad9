"""A process that writes a log: ``python -m tests.reading.live_writer SYSTEM FOLDER``.

It writes `RECORDS` records for each line of standard input, and prints a line when it begins. Files
are recycled all the time, and the log is opened again now and then.
"""

from __future__ import annotations

import random
import sys
from itertools import count, islice

from tallystick.storage.local import LOCAL
from tests.systems.live_logs import LIVE

RECORDS = 40


def main(name: str, folder: str) -> None:
    """Put and drop numbers until standard input ends."""
    log, held, rng, numbers = LIVE[name](LOCAL, folder), list[int](), random.Random(7), count(1)
    for _ in sys.stdin:
        for number in islice(numbers, RECORDS):
            log.put(number)
            held.append(number)
            while len(held) > 12 or (held and rng.random() < 0.4):
                log.drop(held.pop(rng.randrange(len(held))))
            if rng.random() < 0.01:
                log.close()
                log = LIVE[name](LOCAL, folder)
            if number % RECORDS == 1:
                sys.stdout.write(f"{number}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
