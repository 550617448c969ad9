"""The journal that is written: open, recover, append, change files, and the decision log role.

In: statuses of global transactions. Out: files that the original reads; durable when a ticket is.
"""
