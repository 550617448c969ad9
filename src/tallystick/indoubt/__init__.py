"""Branches in doubt over logs and live databases: listed, explained, settled by hand.

In: paths of logs, and resources. Out: a report; only `settle` writes.
"""
