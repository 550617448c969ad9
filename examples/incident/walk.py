"""An incident from the first look to the counted money; in a new folder, or the empty one given.

With Java and Maven, Bitronix 2.1.4 moves money between a real Derby and a real H2, notes it in a
real Artemis and is killed between the commits; then three things are damaged, each as it happens.
Without them, or with ``--packed``, the same is shown on packed logs, up to the runbook. Every
command is typed by you as it stands here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
JARS = (
    "org.slf4j:slf4j-nop:2.0.16", "org.codehaus.btm:btm:2.1.4", "com.h2database:h2:1.4.200",
    "org.apache.derby:derby:10.14.2.0", "org.apache.activemq:artemis-server:2.40.0",
    "org.apache.activemq:artemis-jms-client:2.40.0",
)  # fmt: skip
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tallystick</groupId><artifactId>incident</artifactId><version>1</version><dependencies>
{}</dependencies></project>"""
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"


def main() -> int:
    """Walk through the incident; the exit code is 0 if it ended as it must."""
    given = [one for one in sys.argv[1:] if one != "--packed"]
    folder = Path(given[0] if given else tempfile.mkdtemp(prefix="incident-")).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = any(folder.iterdir())
    except OSError as error:
        print(f"{folder}: {error.strerror}", file=sys.stderr)
        return 2
    if there:
        print(f"{folder} is not empty. Name a new folder", file=sys.stderr)
        return 2
    program = None if "--packed" in sys.argv else java_program(folder)
    logs, mended = folder / "logs", folder / "mended"
    if program is None:
        shutil.copytree(HERE / "logs", logs)
    else:
        java(program, "make", logs)
        damage(logs)
    say("1. Nothing is started. What is the matter?")
    tallystick("triage", logs)
    say("2. What would its coordinator do with what waits?")
    listed = tallystick("indoubt", "list", logs)
    waiting = re.findall(r"^([0-9a-f]+)  due: commit$", listed, re.MULTILINE)
    say("3. What other bytes prove is mended, in a copy.")
    tallystick("repair", logs, "--to", mended)
    tallystick("triage", mended)
    tallystick("indoubt", "explain", waiting[0], mended)
    say("4. What is due now, statement by statement, to sign.")
    book = tallystick("runbook", mended, show=False)
    (folder / "runbook.md").write_text(book, "utf-8")
    print(f"{len(book.splitlines())} lines in {folder / 'runbook.md'}")
    if program is None:
        print("\nThe packed logs end here: a start needs Java, Maven and whole databases.")
        return 0
    say("5. Bitronix, Derby, H2 and Artemis start on the copy. Is all the money there?")
    counted = java(program, "count", mended)
    print(counted, end="")
    pairs = [line.split(" ")[1::2] for line in counted.splitlines() if " of " in line]
    return int(len(pairs) != 3 or any(there != due for there, due in pairs))


def damage(logs: Path) -> None:
    """Spoil one thing in each log: a header in H2, a control file, the time stamp as 2.1.4 does."""
    for name in ("db.lck", "dbex.lck"):
        (logs / "derby/bank" / name).unlink(missing_ok=True)
    (logs / "derby/bank/log/log.ctrl").unlink()
    change(logs / "h2/bank.h2.db", 0, bytes(16))
    first, second = (logs / f"bitronix/btm{number}.tlog" for number in (1, 2))
    stamps = {path: path.read_bytes()[4:12] for path in (first, second)}
    change(max(stamps, key=stamps.__getitem__), 4, (21).to_bytes(8, "big"))


def change(path: Path, offset: int, data: bytes) -> None:
    """Write bytes into a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def tallystick(*arguments: object, show: bool = True) -> str:
    """Run a command, print it and what it prints, and return that."""
    line = [str(one) for one in arguments]
    print("$ tallystick", *line, flush=True)
    command = [sys.executable, "-m", "tallystick", *line]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode not in (0, 1):
        raise SystemExit(said.stderr)
    if show:
        print(said.stdout)
    return said.stdout


def java_program(folder: Path) -> str | None:
    """Return the class path of the compiled bank; None without Java, Maven or a repository."""
    if not all(map(shutil.which, ("java", "javac", "mvn"))):
        return None
    build = folder / "build"
    build.mkdir()
    rows = ("<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
            "</dependency>\n".format(*one.split(":")) for one in JARS)  # fmt: skip
    (build / "pom.xml").write_text(POM.format("".join(rows)))
    listed = build / "classpath"
    found = subprocess.run(
        ["mvn", "-B", "-q", "-f", str(build / "pom.xml"), PLUGIN, f"-Dmdep.outputFile={listed}"],
        capture_output=True, check=False,
    )  # fmt: skip
    if found.returncode != 0:
        return None
    jars = listed.read_text()
    source = str(HERE / "Incident.java")
    subprocess.run(["javac", "-nowarn", "-d", str(build), "-cp", jars, source], check=True)
    return f"{build}:{jars}"


def java(program: str, what: str, folder: Path) -> str:
    """Run the bank, and return what it prints."""
    command = ["java", "-Dderby.stream.error.file=/dev/null", "-cp", program, "Incident", what]
    return subprocess.run(
        [*command, str(folder)], check=True, capture_output=True, text=True, cwd=folder.parent
    ).stdout


def say(title: str) -> None:
    """Print a title."""
    print(f"\n{title}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
