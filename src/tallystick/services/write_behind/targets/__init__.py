"""Where write-behind applies transactions: targets, their workers, SQL.

In: transactions in order. Out: rows in databases or calls of functions, each at least once, exactly
once where the target keeps a table of applied numbers.
"""
