"""Records of a native log as Arrow batches, without a Python object per record.

In: bytes of files. Out: batches of the `RECORDS` schema, and splits that are read on their own.
"""
