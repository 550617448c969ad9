"""Reading every log below a path: one way for library, command line and pipeline.

In: a path to a file, a folder or a tree, local or remote, or several. Out: records, Arrow batches,
a summary or both verdicts of every log found there. Nothing is written.
"""

from __future__ import annotations

from tallystick.reading.survey.contents import damaged_file, read_arrow, record_size, scan
from tallystick.reading.survey.judging import explain, inspect, verify
from tallystick.reading.survey.logs import Path, Paths, Progress, Survey, survey
from tallystick.reading.survey.unread import NO_LOG, deliver, error_finding, why_not_followed

__all__ = [
    "NO_LOG",
    "Path",
    "Paths",
    "Progress",
    "Survey",
    "damaged_file",
    "deliver",
    "error_finding",
    "explain",
    "inspect",
    "read_arrow",
    "record_size",
    "scan",
    "survey",
    "verify",
    "why_not_followed",
]
