"""The native log that is written.

In: calls of an application. Out: groups on disk, durable when acknowledged.
"""
