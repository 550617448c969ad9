"""The log that is written, for H2's page log.

In: calls of an application. Out: files that the original reads; durable when acknowledged.
"""
