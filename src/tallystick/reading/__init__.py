"""Reading logs of any system below a path: one way for library, command line and pipeline.

In: a path to a file, a folder or a tree, local or remote. Out: records, Arrow batches, summaries,
both verdicts, answers, or findings. Nothing is written to a log.
"""

from __future__ import annotations

from tallystick.reading.scrubbing import scrub
from tallystick.reading.survey import explain, inspect, read_arrow, scan, verify
from tallystick.reading.triaging import triage

__all__ = ["explain", "inspect", "read_arrow", "scan", "scrub", "triage", "verify"]
