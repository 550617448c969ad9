"""The engine's result against what the bytes prove, for a block log.

In: results of `read` and `engine`. Out: findings, differences and the `Verdict`.
"""
