"""Continuous fuzzing of every reader, every opening for writing and `explain`, guided by coverage.

In: small logs (`seeds`, and the archives in ``corpus``). Out: mutants that break one of the
`properties`, as files that `minimise` makes small and ``found`` keeps as tests.

    python -m tests.fuzz SYSTEM [--seconds 600] [--runs N] [--seed N] [--work FOLDER] [--compiled]

libFuzzer, through atheris, chooses what to mutate by the branches and comparisons that are reached;
`mutate` changes logs rather than bytes, and mends checksums so that mutants get past them.
`services` tries the folders of services and encrypted logs, without guidance.
"""
