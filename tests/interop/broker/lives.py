"""Data directories of real brokers that lived once or several times, and were killed or stopped.

In: a seed. Out: the data directory, undamaged, and how each life ended. The seed says how the
broker is configured (sizes, pools, compaction, paging), what its clients do (bodies, messages that
are not durable, transactions, branches, lag) and when a life ends.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from subprocess import TimeoutExpired

from tests.interop.java import classpath, compile_java, start_java

HERE = Path(__file__).parent
ENDS = ("halt", "stop", "serve", "serve")
"""How a life may end: by its own halt after some work, in order, or by a kill while it works."""
LIVES = (1, 1, 2, 3, 4)
LIMIT_S = 30
"""After so long a life that is to end by itself is killed."""


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker: its artifacts, and what of the program over it differs from the other's."""

    coordinates: tuple[str, ...]
    package: str
    client: str
    locator: str
    queue: str
    start: str


BROKERS = {
    "artemis": Broker(
        ("org.apache.activemq:artemis-server:2.40.0",),
        "org.apache.activemq.artemis",
        "ActiveMQClient",
        "createServerLocatorWithoutHA",
        "@PACKAGE@.api.core.QueueConfiguration.of(queue).setAddress(queue)"
        ".setRoutingType(@PACKAGE@.api.core.RoutingType.ANYCAST)",
        "configuration.setJournalPoolFiles(files); configuration.setMaxDiskUsage(-1);"
        ' configuration.addAddressSetting("#", settings);'
        " configuration.addAcceptorConfiguration(acceptor);"
        " var server = new @PACKAGE@.core.server.embedded.EmbeddedActiveMQ();"
        " server.setConfiguration(configuration); server.start();",
    ),
    "hornetq": Broker(
        ("org.hornetq:hornetq-server:2.4.7.Final",),
        "org.hornetq",
        "HornetQClient",
        "createServerLocatorWithoutHA",
        "queue, queue, null, true",
        "configuration.setJournalMinFiles(Math.max(2, files));"
        " configuration.setCreateJournalDir(true); configuration.setCreateBindingsDir(true);"
        ' configuration.getAddressesSettings().put("#", settings);'
        " configuration.getAcceptorConfigurations().add(acceptor);"
        " var server = @PACKAGE@.core.server.HornetQServers.newHornetQServer(configuration, true);"
        " server.start();",
    ),
}


@cache
def _classes(name: str) -> str:
    broker = BROKERS[name]
    text = (HERE / "lives" / "Lives.java.in").read_text()
    parts = {"START": broker.start, "QUEUE": broker.queue, "CLIENT": broker.client}
    parts |= {"LOCATED": broker.locator, "PACKAGE": broker.package}
    for part, value in parts.items():
        text = text.replace(f"@{part}@", value)
    jars = classpath(broker.coordinates)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Lives.java").write_text(text)
        return f"{compile_java(Path(folder), jars)}:{jars}"


def lived(
    name: str,
    folder: Path,
    seed: int,
    between: Callable[[int], object] | None = None,
    *,
    pages: bool = False,
) -> list[str]:
    """Have a broker live in a folder; return how each of its lives ended.

    ``between`` is called with the number of each life before it begins. One with ``pages`` has
    little memory for its addresses, and clients that send much: in transactions and outside, large
    messages, too.
    """
    rng, path, ends = random.Random(seed), _classes(name), list[str]()
    for life in range(rng.choice(LIVES)):
        ends.append(rng.choice(ENDS))
        if between is not None:
            between(life)
        limit = rng.choice((0.05, 0.5, 1.5, 4)) * rng.random()
        arguments = (folder, seed, life, ends[-1], pages)
        with start_java("Lives", *arguments, classpath=path) as process:
            assert process.stdout is not None
            assert any(line == "working\n" for line in process.stdout), "the broker did not start"
            try:
                process.wait(limit if ends[-1] == "serve" else LIMIT_S)
            except TimeoutExpired:  # it works as long as it may, or is slow
                process.kill()
                ends[-1] = "serve"
    return ends


def way(ends: list[str]) -> str:
    """Return in words how a broker was left."""
    if ends[-1] == "stop":
        return "stopped in order"
    return "killed once" if len(ends) == 1 else "killed after other lives"
