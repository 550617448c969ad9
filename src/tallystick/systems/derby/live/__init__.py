"""The live log: a log folder that is written.

In: records, operations and transactions of an application. Out: files from which Derby boots;
what was acknowledged is durable.
"""
