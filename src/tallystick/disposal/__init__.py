"""What happens to log files that are no longer needed: disposers, archives, retention.

In: redundant files of a log. Out: files deleted, moved, packed or archived, oldest first, after a
sync, again after a failure, and only when no reader holds them back.
"""
