"""The real journals of Artemis and HornetQ, and Narayana's store, as processes to talk to.

In: a folder and how the journal is configured. Out: what the original says that it holds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from subprocess import Popen

from tests.interop.java import classpath, compile_java, start_java

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Original:
    """One original: its jar, and how its journal is made."""

    coordinates: tuple[str, ...]
    package: str
    imports: str
    factory: str
    pool: str = ""
    compact: str = "testCompact"
    plain_fields: bool = False
    """True where a prepared transaction has public fields instead of getters."""

    def source(self) -> str:
        """The driver for this original."""
        text = (HERE / "java" / "Driver.java.in").read_text()
        parts = {"PACKAGE": self.package, "IMPORTS": self.imports, "FACTORY": self.factory}
        parts |= {"POOL": self.pool, "COMPACT": self.compact}
        for name, value in parts.items():
            text = text.replace(f"@{name}@", value)
        for getter, name in _FIELDS.items() if self.plain_fields else ():
            text = text.replace(getter, name)
        return text


_FIELDS = {
    "getId()": "id",
    "getExtraData()": "extraData",
    "getRecords()": "records",
    "getRecordsToDelete()": "recordsToDelete",
}


ORIGINALS = {
    "artemis": Original(
        ("org.apache.activemq:artemis-journal:2.40.0",),
        "org.apache.activemq.artemis",
        "import org.apache.activemq.artemis.core.io.nio.NIOSequentialFileFactory;",
        "new NIOSequentialFileFactory(new File(folder), buffered, 1)",
        "-1,",
    ),
    "hornetq": Original(
        ("org.hornetq:hornetq-journal:2.4.7.Final",),
        "org.hornetq",
        "import org.hornetq.core.journal.impl.NIOSequentialFileFactory;",
        "new NIOSequentialFileFactory(folder, buffered)",
        plain_fields=True,
    ),
    **{
        f"hornetq-{version[:3]}": Original(
            (f"org.hornetq:hornetq-core:{version}", "org.jboss.netty:netty:3.2.10.Final"),
            "org.hornetq",
            "import org.hornetq.core.journal.impl.NIOSequentialFileFactory;",
            "new NIOSequentialFileFactory(folder, buffered)",
            compact="compact",
            plain_fields=True,
        )
        for version in ("2.0.0.GA", "2.1.2.Final")
    },
}


@dataclass(slots=True)
class Loaded:
    """What a load of the original reports; bodies as hex, ``-`` for empty."""

    live: list[tuple[int, int, bool, str]] = field(default_factory=list)
    prepared: list[tuple[int, str, int, int]] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    max_id: int = -1
    nanoseconds: int = 0


class RealJournal:
    """A running original."""

    def __init__(self, process: Popen[str]) -> None:
        self.process = process

    def tell(self, line: str) -> list[str]:
        """Have it do one thing; its answer without the final ok. Fails if it refuses."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer: list[str] = []
        for text in self.process.stdout:
            if text.rstrip("\n") == "ok":
                return answer
            assert not text.startswith("refused"), f"{line[:80]}: {text}"
            answer.append(text.rstrip("\n"))
        raise AssertionError(f"the original ended at {line[:80]!r}")

    def load(self) -> Loaded:
        """Start and load the journal."""
        loaded = Loaded()
        for line in self.tell("load"):
            word, *rest = line.split(" ")
            if word == "live":
                one = (int(rest[0]), int(rest[1]), rest[2] == "true", rest[3])
                loaded.live.append(one)
            elif word == "prepared":
                loaded.prepared.append((int(rest[0]), rest[1], int(rest[2]), int(rest[3])))
            elif word == "failed":
                loaded.failed.append(int(rest[0]))
            elif word == "max":
                loaded.max_id = int(rest[0])
            elif word == "time":
                loaded.nanoseconds = int(rest[0])
        return loaded

    def kill(self) -> None:
        """End it as a power switch would end a process."""
        self.process.kill()
        self.process.wait()


@cache
def prepared_classes(name: str) -> str:
    """The class path with the compiled driver of an original."""
    original = ORIGINALS[name]
    jars = classpath(original.coordinates)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Driver.java").write_text(original.source())
        classes = compile_java(Path(folder), jars)
    return f"{classes}:{jars}"


@contextmanager
def real_journal(
    name: str,
    folder: Path,
    *,
    file_size: int = 10 << 20,
    min_files: int = 2,
    prefix: str = "activemq-data",
    extension: str = "amq",
    buffered: bool = False,
) -> Iterator[RealJournal]:
    """The original over ``folder``; killed at the end if it was not stopped."""
    arguments = (folder, file_size, min_files, prefix, extension, str(buffered).lower())
    with start_java("Driver", *arguments, classpath=prepared_classes(name)) as process:
        yield RealJournal(process)
