"""The engine's result against what the bytes prove, for a block log.

In: the `LogAnalysis` of `runs`. Out: findings, differences and the `Verdict`.
"""
