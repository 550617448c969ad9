"""Whole records of a file in chunks of columns, and the folds over them.

In: the bytes of a file and the rows of its scan, which is the one walk of all ways of reading. Out:
chunks, and what is between them; transactions, effects, the analysis of a journal. No Arrow; these
modules need NumPy and are imported by functions.
"""
