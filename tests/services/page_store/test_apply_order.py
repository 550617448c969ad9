"""Concurrent commits change pages in another order than the log has them: recovery copes.

Recovery applies rows in the order of the log, so trees can get another shape than they had: pages
that were changed before the crash are then only undone, and never written again.
"""

from __future__ import annotations

import pytest

from tallystick.roles import Row
from tallystick.services.page_store import PageStore
from tallystick.storage.files import FileSystem
from tallystick.testing import RecordingFileSystem
from tests.services.page_store.test_crash_states import small_store
from tests.sweeps import SEED

SIZE = 900
"""Four such rows fill a leaf."""


def opened(fs: FileSystem, system: str) -> PageStore:
    return small_store("/store", system, cache_bytes=0, fs=fs)


def applied_in_reverse(store: PageStore, *transactions: dict[int, bytes | None]) -> None:
    """Commit in this order, and change the pages in the reverse order."""
    real, waiting = store._transactions._apply, list[dict[Row, bytes | None]]()
    store._transactions._apply = waiting.append  # type: ignore[method-assign,assignment]
    for changes in transactions:
        with store.begin() as tx:
            for key, row in changes.items():
                tx.put(store.table_id("t"), key, row)
    store._transactions._apply = real  # type: ignore[method-assign]
    for applied in reversed(waiting):
        real(applied)


def crashed_store(fs: RecordingFileSystem, system: str) -> dict[int, bytes]:
    """Crash with a leaf that was split before it lost rows; the log has them in reverse order.

    The new page came from the free list, and is on disk.
    """
    store = opened(fs, system)
    store.create_table("t")
    rows = {key * 10: bytes([key]) * SIZE for key in range(200)}
    with store.begin() as tx:
        tx.table("t").update(rows)
        tx.table("t")[9999] = bytes(20 * SIZE)
    with store.begin() as tx:
        del tx.table("t")[9999]
    store.checkpoint()
    applied_in_reverse(store, {0: None, 10: None}, {5: b"new" * 300})
    with store.begin() as tx:
        assert len(tx.table("t")) == 199, "and every page has gone through the cache"
    del rows[0], rows[10]
    return rows | {5: b"new" * 300}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("system", ["tally", "h2"])
def test_recovery_crashed_anywhere_ends_the_same_whatever_shape_the_trees_get(system: str) -> None:
    before = RecordingFileSystem()
    rows = crashed_store(before, system)
    fs, states = RecordingFileSystem(before.contents()), 0
    opened(fs, system).close()
    for state in fs.crash_states(limit=25, seed=SEED):
        with opened(state.fs(), system) as store:
            assert not store.check()
            with store.begin() as tx:
                assert dict(tx.table("t").range()) == rows
        states += 1
    assert states > 20
