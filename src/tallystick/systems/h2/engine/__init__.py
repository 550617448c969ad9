"""What H2's own recovery does with a page store file, its defects included.

In: the file as `read` gives it. Out: the engine's result in the words of the oracle.
"""
