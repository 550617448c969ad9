"""What happens to log files that are no longer needed: disposers, archives, retention.

In: redundant files of a log. Out: files deleted, moved, compressed or archived, oldest first; after
a failure again, and only once no reader needs them.
"""
