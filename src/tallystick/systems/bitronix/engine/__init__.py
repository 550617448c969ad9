"""What the recovery of Bitronix 2.1.4 and of the 3.0 line does with a journal, defects included.

In: the bytes of both files. Out: cursor events, the outcome of a start, the engine's verdict.
"""
