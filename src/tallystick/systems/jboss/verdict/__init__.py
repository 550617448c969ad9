"""The engine's result against what the bytes prove, for a circular journal.

In: results of `read` and `engine`. Out: findings, differences and the `Verdict`.
"""
