"""An embedded transactional store over an undo/redo log: proof that the log is enough.

In: transactions on tables of rows. Out: pages in place, written whenever it suits, and after
any crash exactly what was committed; prepared transactions wait as in doubt.

* `store`: the order of things; `session`: one transaction; `transactions`: from session to pages
* `locks`, `gate`, `health`: who may when
* `pages`: what a store stands on; `cache`: pages in memory; `checkpoint`: pages go in place
* pages of our own: `tables`, `tree`, `space`, `layout`: tables as B+ trees, over pages, over a
  file; `recovery`: opening after a crash; `backup`, `check`: a copy while working, and its health
* `kept`: opening pages that the log keeps beside itself, in its own layout
* `resource`: a store under a transaction manager
"""

from __future__ import annotations

from tallystick.roles import Defect
from tallystick.services.page_store.session import Session, Table
from tallystick.services.page_store.store import PageStore

__all__ = ["Defect", "PageStore", "Session", "Table"]
