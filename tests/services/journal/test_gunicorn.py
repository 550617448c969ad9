"""The example under gunicorn: workers share a journal, and one of them is killed."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tallystick import Journal

_EXAMPLES = Path(__file__).parents[3] / "examples"


@contextmanager
def _served(log: Path) -> Iterator[int]:
    """Run the example with three workers of four threads; give its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = [
        sys.executable, "-m", "gunicorn", "--workers", "3", "--threads", "4", "--chdir",
        str(_EXAMPLES), "--bind", f"127.0.0.1:{port}", "--log-level", "error",
        "gunicorn_journal:app",
    ]  # fmt: skip
    server = subprocess.Popen(command, env=os.environ | {"JOURNAL": str(log)})
    try:
        deadline = time.monotonic() + 60
        while True:
            assert server.poll() is None
            assert time.monotonic() < deadline
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        server.terminate()
        assert server.wait(60) == 0


def _post(port: int, body: bytes) -> tuple[int, int] | None:
    """Return LSN and worker; None if the worker was killed meanwhile."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/", body)
        answer = connection.getresponse()
        assert answer.status == 201
        lsn, worker = answer.read().split()
    except (http.client.HTTPException, ConnectionError):
        return None
    finally:
        connection.close()
    return int(lsn), int(worker)


@pytest.mark.long
def test_workers_share_the_journal_and_one_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    acknowledged: dict[int, bytes] = {}
    workers: set[int] = set()
    with _served(log) as port, ThreadPoolExecutor(12) as callers:
        for part in range(3):
            bodies = [b"%d-%d" % (part, number) for number in range(150)]
            answers = callers.map(lambda body: _post(port, body), bodies)
            for number, (body, answer) in enumerate(zip(bodies, answers, strict=True)):
                if answer is not None:
                    acknowledged[answer[0]] = body
                    workers.add(answer[1])
                if number == 50 and answer is not None:
                    os.kill(answer[1], signal.SIGKILL)
    assert len(workers) > 3, "every worker has answered, and those in place of the killed ones"
    assert len(acknowledged) > 300
    with Journal(log) as journal:
        found = {record.sequence: record.body for record in journal.replay()}
    assert acknowledged.items() <= found.items()
    assert len(set(found.values())) == len(found), "nothing was written twice"
