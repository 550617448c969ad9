"""Arrow without a format: schemas, columns and record batches, and the seam to compiled kernels.

In: numbers, views of bytes, records. Out: arrays and batches of the schemas of all tables.
"""
