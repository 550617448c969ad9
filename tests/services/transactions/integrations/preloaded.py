"""A service whose manager is used before gunicorn forks its workers; run by `test_preload`.

The master pays as it loads the application, and once more as it ends. A worker says what the
master's manager answers there, and pays by a manager of its own in the same directory.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from tallystick import TransactionManager
from tallystick.errors import TransactionUsageError

StartResponse = Callable[[str, list[tuple[str, str]]], object]
UPDATE = "UPDATE accounts SET balance = balance + 1 WHERE id = %s"
NAMES = ("pg", "maria")


def opened() -> TransactionManager:
    """Return a manager over both databases."""
    resources = {name: os.environ[name.upper()] for name in NAMES}
    return TransactionManager(
        os.environ["COORDINATOR"], resources, shared=True, recovery_interval=0.1
    )


def pay(tm: TransactionManager) -> None:
    """Pay into both databases."""
    with tm.begin() as tx:
        for name in NAMES:
            tx[name].execute(UPDATE, (os.environ["ACCOUNT"],))


of_master = opened()
pay(of_master)


@cache
def of_worker() -> TransactionManager:
    """Return the manager of this process."""
    made = opened()
    atexit.register(made.close)
    return made


def refused() -> int:
    """Return how many calls of the master's manager are refused in this process."""
    count = 0
    for call in (of_master.begin, of_master.recover, of_master.preflight):
        try:
            call()
        except TransactionUsageError:
            count += 1
    of_master.close()
    return count


def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """Pay for a POST; say which process it is and what the master's manager refuses there."""
    found = {"worker": os.getpid(), "refused": refused()}
    if environ["REQUEST_METHOD"] == "POST":
        pay(of_worker())
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(found).encode()]


def on_exit(_: object) -> None:
    """Pay once more in the master: its sessions are as they were."""
    pay(of_master)
    assert of_master.recover().clean
    of_master.close()
