"""Emulate what the original's own recovery does with a journal, its defects included.

In: the files as `read` gives them. Out: the result of its load, in the words of the oracle, and
which files it would reclaim.
"""
