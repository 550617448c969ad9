"""What the original's own recovery does with Derby's log, its defects included.

In: the files as `read` gives them. Out: the engine's result in the words of the oracle.
"""
