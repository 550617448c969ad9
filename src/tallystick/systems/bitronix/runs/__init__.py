"""Plain records of a file in chunks of columns, made by one walk, and the folds over them.

In: the bytes of a file. Out: chunks, and between them the spans of what the walk cannot vouch for;
open decisions and transactions. No Arrow; modules that need NumPy are imported by functions.
"""
