"""Group commit: one write and one sync for everyone who waits.

In: items from threads and asyncio tasks. Out: tickets that are done when the item is durable.
"""
