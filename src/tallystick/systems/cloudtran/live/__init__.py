"""The block log that is written: open, recover, append, roll over, dispose, and its role.

In: transactions with targets and operations. Out: files of blocks; durable when a ticket is.
"""
