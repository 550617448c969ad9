"""Spark: logs as tables, in batch and continuously, and tables over all logs together.

In: paths that hold logs. Out: the tables files, records, transactions, global_transactions,
changes, findings and profile. `source` is the
data source, `planning` and `task` its work without Spark, `stages` are functions DataFrame →
DataFrame, `runner` and `tables` make the tables, `session` starts Spark.
"""
