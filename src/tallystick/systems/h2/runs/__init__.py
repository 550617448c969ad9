"""Records of a log in chunks of columns, made by one walk, and the folds over them.

In: the log stream of a file. Out: chunks, among them those of odd records, which are read one by
one; transactions that are open, counted when they end. No Arrow; modules that need NumPy are
imported by functions.
"""
