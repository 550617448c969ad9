"""The page store's tables inside an H2 database (the page store file of 1.4.200).

In: rows by table and key. Out: pages that the engine accepts as its own, before and after a crash.
`paged_log` is log and pages as one role; `tables` and `schema` the catalogue; `tree` and `overflow`
rows in pages, `nodes` their bytes, `space` their allocation; `redo` and `undo_guard` recovery.
"""
