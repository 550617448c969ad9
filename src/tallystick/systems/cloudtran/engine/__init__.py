"""What the documented rules of a start do with a block log, under both policies on damage.

In: the `LogAnalysis` of the files. Out: the engine's verdict in the words of the oracle.
"""
