"""A Spark session that starts without ado and does not chatter.

In: master and settings. Out: a `SparkSession` whose workers run this interpreter. Settings
that the caller or the environment made are left as they are.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from tallystick.errors import MissingExtraError, TallystickError
from tallystick.pipeline.java_stderr import without_java_notes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGING = Path(__file__).with_name("log4j2.properties")

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""Fit for one machine; a cluster's own settings and ``settings`` come before them."""


def start(
    master: str | None = None, settings: Mapping[str, str] | None = None, app: str = "tallystick"
) -> SparkSession:
    """Return the running session, with ``settings`` made in it, or a new one.

    Raises `TallystickError` where Java is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError("pyspark", "spark") from error
    fresh = SparkSession.getActiveSession() is None
    _require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    local = master is None or master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app)
    if master is not None or "SPARK_REMOTE" not in os.environ:
        builder = builder.master(master or os.environ.get("MASTER", "local[*]"))
    defaults = _quiet() | DEFAULTS if fresh else {}
    for name, value in (defaults | dict(settings or {})).items():
        builder = builder.config(name, value)
    with without_java_notes() if fresh else nullcontext():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _quiet() -> dict[str, str]:
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"}


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin", "java").exists()) and shutil.which("java") is None:
        raise TallystickError(
            "Spark needs Java 17 or later, and there is no java",
            advice="Install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME",
        )
