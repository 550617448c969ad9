"""What the bytes of a Derby log prove, set beside what its engine would do.

In: what `read` and `engine` found. Out: findings, differences and the `Verdict`.
"""
