"""Compare what the bytes of a journal prove with what its own loader would do.

In: the strict analysis and the engine's load. Out: differences, findings, the `Verdict`.
"""
