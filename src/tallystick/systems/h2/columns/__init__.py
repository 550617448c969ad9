"""Records of H2's page log as Arrow batches, without a Python object per record.

In: the log stream of a file. Out: batches of the `RECORDS` schema.
"""
