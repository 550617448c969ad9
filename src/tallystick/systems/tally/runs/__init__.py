"""Runs of small plain groups as chunks of columns, made by one walk, and the folds over them.

In: the bytes of a segment and what is due in them. Out: places that hold a chunk, transactions and
the state of a log. No Arrow; modules that need NumPy are imported by functions.
"""
