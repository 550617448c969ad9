"""Files of Derby's log as records, transactions and changes.

In: the files of one log, and how far the engine's scans get. Out: byte ranges, records,
transactions, changes. Nothing here writes a file.
"""
