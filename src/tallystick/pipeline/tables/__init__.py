"""The tables that a run writes, and what it may leave as it is.

In: logs and the state of the last run. Out: one folder of Parquet files per table, exchanged whole.
"""
