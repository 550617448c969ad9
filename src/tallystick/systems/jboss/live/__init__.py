"""The log that is written, for a circular journal.

In: calls of an application. Out: files that the original reads; durable when acknowledged.
"""
