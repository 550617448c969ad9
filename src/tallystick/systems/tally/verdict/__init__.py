"""The engine's result against what the bytes prove, for a native log.

In: the scan of a log. Out: findings, differences and the `Verdict`.
"""
