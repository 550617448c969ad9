"""The log that is written, for Derby's log.

In: calls of an application. Out: files that the original reads; durable when acknowledged.
"""
