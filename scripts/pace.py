"""How slow a processor of this machine is now: seconds that it takes for a fixed piece of work.

``python scripts/pace.py 2`` has two processes at once do what most tests do (texts, numbers,
objects that come and go), and prints the mean of their seconds, of processor time. Where neighbours
share a processor, each second of it does less: a limit of processor time has to know.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from statistics import fmean

ROUNDS = 1550
"""One second, where a landing took 20 minutes, on 1 December 2026."""


def work(rounds: int) -> float:
    """Return the seconds of processor time that it took."""
    begun = time.process_time()
    known: dict[bytes, int] = {}
    for number in range(rounds):
        rows = [{"id": key, "name": f"row {key % 97}", "body": [number] * 8} for key in range(300)]
        text = json.dumps(sorted(rows, key=lambda row: (row["name"], row["id"])))
        known[sha256(text.encode()).digest()] = len(json.loads(text))
    return time.process_time() - begun


def main() -> None:
    """Print the mean of the seconds."""
    count = int(sys.argv[1])
    with ProcessPoolExecutor(count) as pool:
        print(f"{fmean(pool.map(work, [ROUNDS] * count)):.2f}")


if __name__ == "__main__":
    main()
