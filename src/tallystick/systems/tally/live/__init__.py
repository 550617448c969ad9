"""The log that is written, for a native log.

In: calls of an application. Out: groups on disk, durable when acknowledged.
"""
