"""Pages of a page store: their bytes, the cache over them, trees and tables of rows.

In: a file and an undo log. Out: tables of rows by signed 64-bit keys, and their integrity check.
"""
