"""An embedded transactional store of rows over an undo/redo log.

In: transactions on tables of rows. Out: pages on disk that hold, after any crash, exactly what was
committed; prepared transactions come back as in doubt. `store` is the API, `transactions` what a
commit does, `checkpoint` and `recovery` the log's beginning and end, `pages` the trees on disk.
"""

from __future__ import annotations

from tallystick.roles import Defect
from tallystick.services.page_store.store import PageStore, is_store
from tallystick.services.page_store.transactions import Session, Table

__all__ = ["Defect", "PageStore", "Session", "Table", "is_store"]
