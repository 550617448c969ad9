"""Records of a Bitronix journal as Arrow batches, by compiled kernels; a file is never split.

In: the bytes of one file. Out: batches of the `RECORDS` schema, every CRC checked.
"""
