"""A Spark session with settings for one machine and a quiet log.

In: master and settings. Out: a `SparkSession` whose workers run this interpreter. Settings
that the caller or the environment made are left as they are. The master ``sail`` is no Spark but
an engine in this process that speaks Spark's protocol: it starts in a second and needs no Java.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tallystick.errors import MissingExtraError, TallystickError
from tallystick.refusals import SPACE_ERRORS, refused
from tallystick.storage.signals import uninterrupted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGING = Path(__file__).with_name("log4j2.properties")

JAVA_NOTES = (b"WARNING: Using incubator modules",)
"""Spark asks for the module, and no setting suppresses the remark."""

_OWN_ERROR = re.compile(r"(?:^|\s)tallystick\.[\w.]+Error: (.+)$", re.MULTILINE)
"""The last line of a worker's traceback, which Spark hands on as text, after words of its own."""

_OF_SETTINGS = re.compile(
    r"\[(?:DATA_SOURCE_NOT_FOUND|\w+_DATA_SOURCE_NOT_ENABLED|INVALID_CONF_VALUE[.\w]*"
    r"|JAVA_GATEWAY_EXITED)\] (.+?)\.*(?: SQLSTATE|$)",
    re.MULTILINE,
)
"""What Spark says of a format, a setting or a master that it does not take."""

_STDERR = 2

SAIL = "sail"
"""The master that stands for the engine without Java."""

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # On a busy machine Java and Python may need longer to find each other than 15 s.
    "spark.python.authenticate.socketTimeout": "120s",
}
"""Fit for one machine; a cluster's own settings and ``settings`` come before them."""


def start(
    master: str | None = None, settings: Mapping[str, str] | None = None, app: str = "tallystick"
) -> SparkSession:
    """Return the running session, with ``settings`` made in it, or a new one.

    Args:
        master: Spark's master, or `SAIL`; default: the environment's, or this machine.
        settings: Settings of Spark's; they come before our defaults.
        app: The application's name.

    Raises:
        MissingExtraError: A package is missing.
        TallystickError: Java is missing.
    """
    if master == SAIL:
        return _start_sail(settings or {}, app)
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError("pyspark", "spark") from error
    fresh = SparkSession.getActiveSession() is None
    _require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", "120")  # seconds; the same, of this side
    local = master is None or master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app)
    if master is not None or "SPARK_REMOTE" not in os.environ:
        builder = builder.master(master or os.environ.get("MASTER", "local[*]"))
    defaults = _logging_settings() | DEFAULTS if fresh else {}
    for name, value in (defaults | dict(settings or {})).items():
        builder = builder.config(name, value)
    # Broken off, the start of Java leaves a process behind that nobody ends.
    with without_java_notes() if fresh else contextlib.nullcontext(), uninterrupted:
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _start_sail(settings: Mapping[str, str], app: str) -> SparkSession:
    try:
        from pysail.spark import SparkConnectServer
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError("pysail", SAIL) from error
    from tallystick.pipeline.source.batch import TallystickDataSource

    checkpoints = tempfile.mkdtemp(prefix="tallystick-sail-")
    atexit.register(shutil.rmtree, checkpoints, ignore_errors=True)
    os.environ.setdefault("RUST_LOG", "error")
    os.environ["SAIL_EXECUTION__CHECKPOINT__PATH"] = Path(checkpoints).as_uri()
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    atexit.register(server.stop)
    _, port = server.listening_address
    builder = SparkSession.builder.appName(app).remote(f"sc://127.0.0.1:{port}")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.dataSource.register(TallystickDataSource)
    return session


@contextlib.contextmanager
def own_errors(place: str = "") -> Iterator[None]:
    """Turn a failure of Spark that our code caused into that error's own sentence.

    And one that the operating system caused, in a worker, in Java or here, into one that says so;
    it names ``place`` where it names no file.
    """
    try:
        yield
    except (TallystickError, BrokenPipeError):
        raise
    except OSError as error:
        raise refused(error, place) from error
    except Exception as error:  # each engine, and Java, has types of its own
        if said := _OWN_ERROR.findall(str(error)):
            raise TallystickError(said[-1]) from error
        if said := _OF_SETTINGS.findall(str(error)):
            raise TallystickError(
                f"Spark does not take what it was given: {said[0]}",
                advice="Look at the format, the master and the settings (--conf)",
            ) from error
        for number in (*SPACE_ERRORS, errno.EROFS):
            if os.strerror(number) in str(error):
                raise refused(OSError(number, os.strerror(number)), place) from error
        raise


@contextlib.contextmanager
def ended(spark: SparkSession) -> Iterator[None]:
    """End a session after a block; where the block is interrupted, by a connection of its own.

    The one of this thread may wait for an answer, which the next call would take for its own.
    """
    try:
        yield
    except KeyboardInterrupt:
        thread = threading.Thread(target=spark.stop)
        thread.start()
        thread.join()
        raise
    except BaseException:
        spark.stop()
        raise
    spark.stop()


def _logging_settings() -> dict[str, str]:
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"}


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin", "java").exists()) and shutil.which("java") is None:
        raise TallystickError(
            "Spark needs Java 17 or later, and there is no java",
            advice="Install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME",
        )


@contextlib.contextmanager
def without_java_notes() -> Iterator[None]:
    """Filter the standard error of processes that are started meanwhile.

    The filter lives as long as such a process, and drops lines that begin with `JAVA_NOTES`.
    """
    sys.stderr.flush()
    own = os.dup(_STDERR)
    reading, writing = os.pipe()
    os.dup2(writing, _STDERR)
    os.close(writing)
    threading.Thread(target=_forward, args=(reading, os.dup(own)), daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(own, _STDERR)
        os.close(own)


def _forward(reading: int, writing: int) -> None:
    """Copy lines until the last process that writes has ended."""
    with os.fdopen(reading, "rb") as lines, os.fdopen(writing, "wb", buffering=0) as out:
        for line in lines:
            if not line.startswith(JAVA_NOTES):
                with contextlib.suppress(OSError):  # the reader has closed it
                    out.write(line)
