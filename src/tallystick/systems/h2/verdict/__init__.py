"""The engine's result against what the bytes prove, for H2's page log.

In: results of `read` and `engine`. Out: findings, differences and the `Verdict`.
"""
