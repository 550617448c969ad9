"""Records of a circular journal as Arrow batches, without a Python object per record.

In: the files of a journal. Out: batches of the `RECORDS` schema, and splits that are read on
their own.
"""
