"""Kill a working process with SIGKILL, again and again, and check what its log kept.

In: a ``work`` function that runs in a forked child and reports over a pipe. Out: the items it had
submitted and those that had been acknowledged when it died. A killed process loses nothing that the
operating system has, so this tests atomicity and restart, not the disk: for that there is
`tallystick.testing.crashes`.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tallystick.callables import checked
from tallystick.testing.checks import check_items

_LINE_MAX = 4096
"""Most bytes that a pipe takes at once (PIPE_BUF of Linux), so that no report is torn."""
_SUBMITTED, _ACKNOWLEDGED = b"\ns", b"\na"


class Reporter:
    """The child's end of the pipe. Items are JSON values; lists come back as tuples.

    Attributes:
        run: The number of the child within one check, 0 first: useful as a part of items that must
            differ from those of earlier children.
    """

    def __init__(self, descriptor: int, run: int = 0) -> None:
        self.run = run
        self._descriptor = descriptor

    def submitted(self, item: Any) -> None:
        """Report an item before it is handed to the log.

        Args:
            item: A JSON value.

        Raises:
            ValueError: The report has more than 4096 bytes.
        """
        self._send(_SUBMITTED, item)

    def acknowledged(self, item: Any) -> None:
        """Report an item after the log has reported it durable.

        Args:
            item: As for `submitted`.

        Raises:
            ValueError: The report has more than 4096 bytes.
        """
        self._send(_ACKNOWLEDGED, item)

    def _send(self, kind: bytes, item: Any) -> None:
        # JSON text has no line feed, so each line feed begins a report.
        line = kind + json.dumps(item).encode()
        if len(line) > _LINE_MAX:
            raise ValueError(f"a report of {len(line)} bytes, at most {_LINE_MAX}")
        os.write(self._descriptor, line)


@dataclass(slots=True)
class Killed:
    """What a child had reported when it died; ``finished`` if it ended before the kill."""

    submitted: list[Hashable] = field(default_factory=list)
    acknowledged: list[Hashable] = field(default_factory=list)
    finished: bool = False

    def __str__(self) -> str:
        end = "ended by itself" if self.finished else "was killed"
        counts = f"{len(self.submitted):,} submitted, {len(self.acknowledged):,} acknowledged"
        return f"The child {end}: {counts}."

    def add(self, later: Killed) -> None:
        """Add what a later child reported."""
        self.submitted += later.submitted
        self.acknowledged += later.acknowledged


def run_and_kill(
    work: Callable[[Reporter], object],
    *,
    after: int,
    seconds: float = 0.0,
    timeout: float = 60.0,
    run: int = 0,
    before: Callable[[], object] | None = None,
) -> Killed:
    """Run ``work`` in a forked child and kill it some time after an acknowledgement.

    Call it where no other threads run: a fork takes only the calling one along.

    Args:
        work: Opens the log, and reports each item before and after it is made durable.
        after: Acknowledgements to wait for before the kill.
        seconds: Further delay before the kill.
        timeout: Longest wait for the acknowledgements, in seconds.
        run: Number of the child, for its `Reporter`.
        before: Called before the kill, while the child works: it may take the child's disk away.
            What is acknowledged from then on does not count.

    Returns:
        What the child had reported.

    Raises:
        AssertionError: The child failed by itself; its traceback is on stderr.
        TimeoutError: The child has stopped reporting.
    """
    work, before = checked(work, "the work of a child"), checked(before, "before a kill")
    child, reading = _start_child(work, run)
    try:
        lines = _read_until(reading, after, timeout)
        time.sleep(seconds)
        lines, counted = _call_before(before, reading, lines)
    finally:
        finished = _kill(child)
    with os.fdopen(reading, "rb") as pipe:
        killed = _parse(lines + pipe.read(), counted)
    killed.finished = finished
    return killed


def _call_before(
    before: Callable[[], object] | None, reading: int, lines: bytes
) -> tuple[bytes, int]:
    """Return the reports until the call of ``before``, and how many acknowledgements count."""
    if before is None:
        return lines, sys.maxsize
    lines += _waiting(reading)
    counted = lines.count(_ACKNOWLEDGED)
    before()
    return lines, counted


def _kill(child: int) -> bool:
    """Kill a child; return whether it had finished before. It must not have failed."""
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFEXITED(status):
        return False
    assert os.WEXITSTATUS(status) == 0, "the child failed by itself; its traceback is above"
    return True


def check_kills(
    work: Callable[[Reporter], object],
    recover: Callable[[], Iterable[Hashable]],
    *,
    kills: int,
    seed: int = 0,
    after_max: int = 50,
    seconds_max: float = 0.005,
    writer_of: Callable[[Hashable], Hashable] | None = None,
) -> int:
    """Kill ``work`` at random moments, over the same log, which it reopens each time.

    After each kill the recovery must return every item acknowledged so far, of all runs, and none
    that was never submitted.

    Args:
        work: As for `run_and_kill`.
        recover: Opens the log, closes it, and returns its items in order.
        kills: How often.
        seed: Of the moments.
        after_max: Acknowledgements before a kill are fewer than this.
        seconds_max: Longest further delay before a kill.
        writer_of: As for `check_recovery`.

    Returns:
        The number of acknowledged items.

    Raises:
        AssertionError: As for `check_items` and `run_and_kill`.
        TimeoutError: A child has stopped reporting.
    """
    rng = random.Random(seed)
    total = Killed()
    for number in range(kills):
        after, seconds = rng.randrange(after_max), rng.uniform(0, seconds_max)
        total.add(run_and_kill(work, after=after, seconds=seconds, run=number))
        submitted, acknowledged, found = total.submitted, total.acknowledged, list(recover())
        where = f"kill {number} of seed {seed}"
        check_items(submitted, acknowledged, found, writer_of=writer_of, where=where)
    return len(total.acknowledged)


def _start_child(work: Callable[[Reporter], object], run: int) -> tuple[int, int]:
    """Run ``work`` in a forked child; return its process id and the pipe to read its reports."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_child(work, Reporter(writing, run))
    os.close(writing)
    return child, reading


def _run_child(work: Callable[[Reporter], object], reporter: Reporter) -> NoReturn:
    status = 1
    try:
        work(reporter)
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        # Neither the parent's cleanups nor its test runner may run here as well.
        os._exit(status)


def _read_until(pipe: int, acknowledgements: int, timeout: float) -> bytes:
    data = b""
    deadline = time.monotonic() + timeout
    while (count := data.count(_ACKNOWLEDGED)) < acknowledgements:
        ready, _, _ = select.select([pipe], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            raise TimeoutError(f"the child acknowledged {count} items in {timeout} s")
        piece = os.read(pipe, 1 << 16)
        if not piece:
            break
        data += piece
    return data


def _waiting(pipe: int) -> bytes:
    data = b""
    while select.select([pipe], [], [], 0)[0] and (piece := os.read(pipe, 1 << 16)):
        data += piece
    return data


def _parse(data: bytes, counted: int) -> Killed:
    """Return the reports, without acknowledgements after so many."""
    killed = Killed()
    for line in data.split(b"\n")[1:]:
        target = killed.submitted if line[:1] == _SUBMITTED[1:] else killed.acknowledged
        target.append(_hashable(json.loads(line[1:])))
    del killed.acknowledged[counted:]
    return killed


def _hashable(item: Any) -> Hashable:
    if isinstance(item, list):
        return tuple(_hashable(part) for part in item)
    if isinstance(item, dict):
        return tuple((key, _hashable(value)) for key, value in item.items())
    result: Hashable = item
    return result
