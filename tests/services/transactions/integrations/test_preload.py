"""gunicorn with ``--preload``: workers are forked from a master whose manager was used before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.servers import START_SECONDS, Server, free_port
from tests.services.transactions.resources.test_databases import Bank

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

ROOT = Path(__file__).parents[4]
MODULE = "tests.services.transactions.integrations.preloaded"
REQUESTS = 40


class Service:
    """The application under gunicorn, with workers that are replaced after a few requests."""

    def __init__(self, bank: Bank) -> None:
        self.port = free_port()
        urls = {name.upper(): bank.urls[name] for name in ("pg", "maria")}
        command = [
            sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--threads", "2",
            "--max-requests", "12", "--bind", f"127.0.0.1:{self.port}", "--log-level", "error",
            "--config", f"python:{MODULE}", f"{MODULE}:app",
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command,
            env=os.environ
            | urls
            | {"COORDINATOR": str(bank.folder / "node"), "ACCOUNT": str(bank.account)},
            cwd=ROOT,
        )

    def ask(self, method: str) -> dict[str, int] | None:
        """Return the answer; None if the worker was killed or replaced meanwhile."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/", method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                found: dict[str, int] = json.loads(answer.read())
                return found
        except OSError:
            return None

    def first(self) -> dict[str, int]:
        """Return the first answer, once a worker gives one."""
        deadline = time.monotonic() + START_SECONDS
        while (found := self.ask("GET")) is None:
            assert self.process.poll() is None, "gunicorn has ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return found


def test_workers_of_a_preloaded_application_refuse_its_manager_and_leave_it_whole(
    tmp_path: Path, postgres_server: Server, mariadb_server: Server
) -> None:
    bank = Bank(tmp_path, postgres_server, mariadb_server)
    service = Service(bank)
    try:
        answers = [service.first()]
        os.kill(answers[0]["worker"], signal.SIGKILL)
        with ThreadPoolExecutor(4) as callers:
            found = callers.map(service.ask, ["POST"] * REQUESTS)
            paid = [answer for answer in found if answer is not None]
        answers += paid
    finally:
        service.process.terminate()
        assert service.process.wait(60) == 0, "the master has paid once more as it ended"
    assert len({answer["worker"] for answer in answers}) > 2
    assert {answer["refused"] for answer in answers} == {3}
    balances = bank.balances()
    assert balances["pg"] == balances["maria"]
    assert 2 + len(paid) <= balances["pg"] <= 2 + REQUESTS
