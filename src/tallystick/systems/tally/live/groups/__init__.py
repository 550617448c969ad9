"""The groups of a native log that is written: what becomes of the items of each.

In: the items that callers and roles submit, in order. Out: groups at the end of the log, the state
as they leave it, and an answer for each item; what no caller waits for is kept until there is room.
"""
