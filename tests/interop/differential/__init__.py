"""Our answer about damaged logs against what the originals do with the same bytes.

`originals` makes databases and journals by random work and halts it, `damage` damages copies,
`cases` lets us answer and the original open each copy, and counts. Run
``python -m tests.interop.differential.cases --help``.
"""
