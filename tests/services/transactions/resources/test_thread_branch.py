"""Calls of branches that run ahead in worker threads."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tallystick.errors import LogClosedError
from tallystick.records import Xid
from tallystick.services.transactions import Vote
from tallystick.services.transactions.resource import ResourceUnreachable
from tallystick.services.transactions.resources.thread_branch import ThreadedBranch


class LostBranch:
    """Its database is away."""

    xid = Xid(1, b"gtrid", b"bqual")
    handle = None

    def prepare(self) -> Vote:
        raise ResourceUnreachable("away")

    def commit(self) -> None:
        raise ResourceUnreachable("away")

    def rollback(self) -> None:
        """Nothing is left."""

    commit_one_phase = commit
    close = rollback


@pytest.mark.parametrize("send", [ThreadedBranch.send_prepare, ThreadedBranch.send_commit])
async def test_an_answer_that_nobody_awaits_is_no_complaint_of_the_loop(send: Any) -> None:
    """A commit that is cut short has sent requests whose answers it does not await."""
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        with ThreadPoolExecutor(1) as workers:
            branch = ThreadedBranch(LostBranch(), workers)
            assert send(branch)
            branch.discard(prepared=True)
        await asyncio.sleep(0.01)
        del branch
        gc.collect()

    await main()
    assert complaints == []


async def test_what_cannot_be_sent_is_an_error_of_the_call_that_waits() -> None:
    """Raised in sending, it would keep the other branches from being told."""
    workers = ThreadPoolExecutor(1)
    workers.shutdown()
    branch = ThreadedBranch(LostBranch(), workers)
    assert not branch.send_commit()
    with pytest.raises(LogClosedError):
        await branch.commit()
