"""The Spark data source: tables and streams of logs, and the sink.

In: options and positions. Out: Arrow batches of the rows between them.
"""
