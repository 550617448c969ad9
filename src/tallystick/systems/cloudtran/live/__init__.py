"""The log that is written, for a block log.

In: calls of an application. Out: files that the original reads; durable when acknowledged.
"""
