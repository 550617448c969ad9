"""Write a circular journal: open, recover, append, reclaim, compact.

In: calls of an application. Out: files that the original reads; durable when acknowledged.
"""
