"""The recovery of Derby's own engine, its defects included.

In: the files as `read` gives them. Out: what a boot would do, in the words of the oracle.
"""
