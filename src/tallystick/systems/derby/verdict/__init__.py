"""The engine's result against what the bytes prove, for Derby's log.

In: results of `read` and `engine`. Out: findings, differences and the `Verdict`.
"""
