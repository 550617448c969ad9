"""Programs that are killed, as forks of one process that has imported what they run.

A Python process that starts, and imports a service with its drivers, costs a fifth of a second and
more; a fork of one that has done so costs a hundredth. It has a memory of its own, nothing of the
tests' process, and is killed as any other is.
"""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from collections.abc import Iterator
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import IO

import pytest

PROGRAMS = ("tests.services.transactions.killed",)
"""Modules that the forks find imported."""

_CONTEXT = multiprocessing.get_context("forkserver")


class Program:
    """The ``main`` of a module, with arguments, in a fork; what it prints is read at ``stdout``."""

    def __init__(self, module: str, *arguments: str) -> None:
        _CONTEXT.set_forkserver_preload(list(PROGRAMS))
        reader, writer = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=_run, args=(module, arguments, writer))
        self._process.start()
        writer.close()
        self._reader = reader
        self.stdout: IO[str] = open(reader.fileno(), closefd=False)  # noqa: SIM115

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()

    def poll(self) -> int | None:
        """Return its status; None while it runs."""
        return self._process.exitcode

    def communicate(self, timeout: float = 60.0) -> tuple[str, int]:
        """Wait for its end; return what it printed, and its status: below 0 if it was killed."""
        self._process.join(timeout)
        status = self._process.exitcode
        assert status is not None, f"{self.pid} runs still"
        with self.stdout:
            printed = self.stdout.read()
        self._reader.close()
        self._process.close()
        return printed, status


def _run(module: str, arguments: tuple[str, ...], writer: Connection) -> None:
    sys.argv[1:] = arguments
    with open(writer.fileno(), "w", closefd=False, buffering=1) as sys.stdout:
        importlib.import_module(module).main()


@pytest.fixture(scope="session", autouse=True)
def _end_of_forks() -> Iterator[None]:
    """Have the process that forks end with the run, as later nobody counts what it used."""
    yield
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
