"""Tables over the pages of an H2 page store file, for a store that lives in one.

In: rows by table and key. Out: pages that the engine takes for its own, before and after a crash.

* `paged`: log and pages as one role; `redo`: what the log says, applied to the tables
* `tables`: tables by name, as the engine's catalogue has them; `schema`: the catalogue's rows;
  `first`: a database without tables
* `tree`, `pieces`, `overflow`: rows over pages; `space`: pages in use; `nodes`: pages <-> bytes;
  `guard`: images ahead of what the engine's redo may do
* `check`: the health of all of them
"""
