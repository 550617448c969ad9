"""The files in the folder of a page store that its log does not explain.

In: nothing. Out: their names, and what the mark of a backup holds, for who writes and who reads.
"""

from __future__ import annotations

PAGES = "pages"
"""Name of the file of the pages."""
BACKUP_MARK = "backup"
"""Name of the file that says that the pages beside it are a backup, and have no log."""
BACKUP_TEXT = b"pages without a log\n"
"""What that file holds."""
