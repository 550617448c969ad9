"""An embedded transactional store over an undo/redo log: proof that the log is enough.

In: transactions on tables of rows. Out: pages in place, written whenever it suits, and after
any crash exactly what was committed; prepared transactions wait as in doubt.

* `store`: the order of things; `session`: one transaction; `transactions`: from session to pages
* `locks`, `gate`, `health`: who may when
* `tables`, `tree`, `cache`, `layout`: tables as B+ trees, over pages, over a file
* `checkpoint`: pages go in place; `recovery`: opening after a crash
* `backup`, `check`: a copy while working, and its health
* `resource`: a store under a transaction manager
"""

from __future__ import annotations

from tallystick.services.page_store.check import Defect
from tallystick.services.page_store.session import Session, Table
from tallystick.services.page_store.store import PageStore

__all__ = ["Defect", "PageStore", "Session", "Table"]
