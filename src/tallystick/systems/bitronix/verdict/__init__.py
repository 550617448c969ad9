"""The engine's result against what the bytes prove, for a Bitronix journal.

In: results of `read` and `engine`. Out: findings, differences and the `Verdict`.
"""
