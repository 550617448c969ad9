"""Rows that need pages of every kind, in any layout of a page store."""

from __future__ import annotations

from tallystick import PageStore


def put_rows(store: PageStore, page_size: int) -> None:
    """Fill table ``t``: leaves, inner nodes, a long row, and the pages of a removed one."""
    store.create_table("t")
    with store.begin() as tx:
        for key in range(60):
            tx.table("t")[key] = b"%d" % key + bytes(500)
        tx.table("t")[100] = bytes(3 * page_size)
        tx.table("t")[101] = bytes(3 * page_size)
    with store.begin() as tx:
        del tx.table("t")[101]
