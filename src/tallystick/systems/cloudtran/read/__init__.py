"""The files of a block log as blocks, records, transactions and changes. Writes nothing.

In: the files of one log. Out: what is in them, and the `LogAnalysis` of all files together.
"""
