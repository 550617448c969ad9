"""The targets of write-behind, and the workers that apply transactions to them.

In: durable transactions in order. Out: rows in databases or calls of functions, each at least once,
exactly once where the target keeps a table of applied numbers.
"""
