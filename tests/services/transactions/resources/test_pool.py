"""Connections that wait for their next branch."""

from __future__ import annotations

import asyncio

import pytest

from tallystick.services.transactions.resources.pool import AsyncPool


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_connection_whose_task_is_cancelled_as_its_branch_begins_is_closed(
    fresh: bool,
) -> None:
    made, closed = list[object](), list[object]()

    async def connect() -> object:
        made.append(object())
        return made[-1]

    async def start(_: object) -> None:
        await asyncio.sleep(60)

    pool = AsyncPool(connect, closed.append)
    if not fresh:
        pool.give(await connect())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pool.begin(start), 0.001)
    assert closed == made
    assert len(made) == 1
