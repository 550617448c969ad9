"""Group commit: one write and one sync for every caller that waits.

In: items from threads and asyncio tasks. Out: tickets that are done once the item is durable.
`writer` tells the algorithm and its invariants; the other modules are its parts.
"""
