"""The log that is written, for a Bitronix journal.

In: calls of an application. Out: files that the original reads; durable when acknowledged.
"""
