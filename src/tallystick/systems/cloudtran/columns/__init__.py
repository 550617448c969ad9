"""Entries of a block log as Arrow batches, by compiled kernels, and splits of its files.

In: the files, and a function that opens one. Out: batches of the `RECORDS` schema; `Split`s.
"""
