"""Derby's records as Arrow batches: compiled scan, batches, splits.

In: the files of a log, and a `Split` of them. Out: batches of the `RECORDS` schema.
"""
