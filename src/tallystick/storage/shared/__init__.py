"""Several processes, one leader: what a log needs to be shared by them; knows no format.

In: a folder of a log, and batches of bytes from many processes. Out: one process that writes them,
another one as soon as it is gone, and an answer for every batch, once. `epochs` tells the algorithm
and its invariants; the other modules are its parts.
"""
