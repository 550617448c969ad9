"""Spark: logs as tables, in batch and continuously, and what no single log tells.

In: paths that hold logs. Out: the tables files, records, transactions, global_transactions,
changes, findings and profile. Reading: `options` → `planning` → `executing`, which know
nothing of Spark, behind the data source of `source`; then `stages` (DataFrame → DataFrame)
and `runner`. Spark is imported only by `source`, `stages`, `runner` and `session`.
"""
