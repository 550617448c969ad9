"""The worker process in which Spark runs a Python data source.

In: the process. Out: which part of Spark runs it, and errors of ours as one sentence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tallystick.errors import TallystickError

STREAM_WORKER = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module in whose process Spark asks a stream for its offsets."""


def main_module() -> str:
    """Return the name of the module that this process was started with; empty of a script."""
    return getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None) or ""


@contextmanager
def one_sentence() -> Iterator[None]:
    """Let Spark show an error of ours without the worker's traceback, which is long.

    The variable is one of PySpark; the worker that it is set in ends with the error.
    """
    try:
        yield
    except TallystickError:
        if main_module().startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
