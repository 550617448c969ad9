"""The log in a page store file that is being written.

In: calls of an application. Out: files that the original reads; durable when acknowledged.
"""
