"""Whole blocks of a log in chunks of columns, made by one walk, and the folds over them.

In: the scan of each file and the order of its blocks. Out: chunks, and between them the blocks that
the walk cannot vouch for; transactions, changes, the analysis of a log. No Arrow; modules that need
NumPy are imported by functions.
"""
