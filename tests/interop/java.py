"""Java for the interop tests: jars by Maven coordinates, our small programs, time limits.

* `classpath(["group:artifact:version", ...])`: resolve with dependencies, once per machine
* `compile_java(folder, classpath)`: compile every ``.java`` below the folder, once per content
* `run_java(main, *args, classpath=...)`: run to the end, return what it printed
* `start_java(main, *args, classpath=...)`: a process to talk to, or to kill

Every one of them skips the test, or fails it where that is required, if Java or Maven is
missing or Maven reaches no repository. Jars go to Maven's own cache, classes and class paths to
a folder of this user below the system's temporary one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.need import need
from tests.pipeline.quick import JAVA as QUICK_JAVA

RESOLVE_LIMIT_S = 300
COMPILE_LIMIT_S = 120
RUN_LIMIT_S = 60
_always = ["-Xshare:auto"]
"""Options of every program."""
_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tallystick</groupId><artifactId>interop</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
    </dependency>"""


def classpath(coordinates: Sequence[str]) -> str:
    """The class path of these artifacts (``group:artifact:version``) and what they need."""
    need("java")
    need("maven")
    home = _home()
    remembered = home / f"classpath-{_stamp(sorted(coordinates))}"
    with (home / "lock").open("w") as lock:  # Maven's cache is not made for two at a time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _still_there(remembered):
            _resolve(coordinates, remembered)
    return remembered.read_text()


def compile_java(source_dir: Path, classpath: str = "") -> Path:
    """The folder of the classes of every ``.java`` file below ``source_dir``."""
    need("java")
    sources = sorted(source_dir.rglob("*.java"))
    assert sources, f"no Java source below {source_dir}"
    stamp = _stamp([classpath, *(one.read_text() for one in sources)])
    target = _home() / f"classes-{stamp}"
    if not target.is_dir():
        fresh = Path(tempfile.mkdtemp(dir=_home()))
        command = ["javac", "-nowarn", "-proc:none", "-d", str(fresh), "-cp", classpath or "."]
        _checked([*command, *map(str, sources)], COMPILE_LIMIT_S)
        _put(fresh, target)
    return target


def run_java(
    main: str,
    *arguments: object,
    classpath: str,
    options: Sequence[str] = (),
    timeout_s: float = RUN_LIMIT_S,
    cwd: Path | None = None,
) -> str:
    """Standard output of ``main``; an `AssertionError` with its errors if it fails."""
    return _checked(command(main, arguments, classpath, options), timeout_s, cwd)


@contextmanager
def start_java(
    main: str, *arguments: object, classpath: str, options: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A running ``main`` with text pipes; killed at the end if it still runs."""
    process = subprocess.Popen(
        command(main, arguments, classpath, options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    )
    try:
        with process:
            yield process
            process.kill()
    finally:
        process.kill()


def command(
    main: str, arguments: Sequence[object], classpath: str, options: Sequence[str] = ()
) -> list[str]:
    """What starts ``main``."""
    return ["java", *_always, *options, "-cp", classpath, main, *map(str, arguments)]


def be_quick() -> None:
    """Have programs do without a second compiler, many threads to collect, and proofs of classes.

    For tests: in programs of seconds these cost more than they bring. What is measured has them.
    """
    _always[:] = ["-Xshare:auto", *QUICK_JAVA.split()]


def _checked(command: list[str], limit_s: float, cwd: Path | None = None) -> str:
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=limit_s, check=False, cwd=cwd
    )
    reported = answer.stdout[-4000:] + answer.stderr[-4000:]
    assert answer.returncode == 0, f"{command[0]} ended with {answer.returncode}:\n{reported}"
    return answer.stdout


def _resolve(coordinates: Sequence[str], remembered: Path) -> None:
    with tempfile.TemporaryDirectory(dir=_home()) as work:
        pom, listed = Path(work, "pom.xml"), Path(work, "classpath")
        pom.write_text(_POM.format("".join(_DEPENDENCY.format(*c.split(":")) for c in coordinates)))
        command = ["mvn", "-B", "-q", "-f", str(pom), _DEPENDENCY_PLUGIN]
        answer = subprocess.run(
            [*command, f"-Dmdep.outputFile={listed}"],
            capture_output=True,
            text=True,
            timeout=RESOLVE_LIMIT_S,
            check=False,
        )
        if answer.returncode != 0:
            _unavailable(", ".join(coordinates), answer.stdout[-2000:])
        listed.replace(remembered)


def _unavailable(what: str, reported: str) -> None:
    text = f"Maven could not resolve {what}:\n{reported}"
    if "maven" in os.environ.get("TALLYSTICK_REQUIRE", "").split(","):
        pytest.fail(text)
    pytest.skip(text)


def _still_there(remembered: Path) -> bool:
    if not remembered.exists():
        return False
    return all(Path(jar).exists() for jar in remembered.read_text().split(os.pathsep))


def _home() -> Path:
    home = Path(tempfile.gettempdir()) / f"tallystick-java-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    return home


def _stamp(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _put(fresh: Path, target: Path) -> None:
    try:
        fresh.rename(target)
    except OSError:  # another process was faster
        shutil.rmtree(fresh)
