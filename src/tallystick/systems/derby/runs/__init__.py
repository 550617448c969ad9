"""Plain records of a log in chunks of columns, made by one walk, and the folds over them.

In: log files that are not encrypted. Out: chunks, and between them the ranges that the walk cannot
vouch for; transactions and changes. No Arrow; modules that need NumPy are imported by functions.
"""
