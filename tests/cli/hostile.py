"""The fake system, saying in every name what a terminal or a markup language would obey."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tallystick.records import Difference, Finding, Record, Severity, State, Transaction, Verdict
from tallystick.systems.protocol import System
from tests.pipeline import fake

NAME = (
    "\x1b]0;owned\x07\x1b[31mred\r\n[bold]b[/bold]\x7f\x85\x9b2J\u202erotid\u2066\u200f\u2028\udcff"
)
"""A title, a colour, a new line, markup, C1 controls, marks of direction, a lone surrogate."""

SHOWN = (
    r"\x1b]0;owned\x07\x1b[31mred\r\n[bold]b[/bold]"
    r"\x7f\x85\x9b2J\u202erotid\u2066\u200f\u2028\udcff"
)
"""The same, as a person is to see it."""


@dataclass
class HostileReading(fake.FakeReading):
    """One folder of the hostile system."""

    format: str = NAME

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        for record in super().records(salvage=salvage):
            record.type = NAME
            record.resources = (NAME,)
            yield record

    def transactions(self) -> Iterable[Transaction]:
        yield Transaction(
            "fake",
            self.source.path,
            NAME,
            State.PENDING,
            transaction=1,
            name=NAME,
            participants=(NAME,),
            open_participants=(NAME,),
            first_time=1,
        )

    def findings(self) -> Sequence[Finding]:
        found = Finding("bad-name", Severity.DAMAGE, "fake", self.source.path, f"of {NAME}")
        return [
            replace(
                found, file=NAME + "x", expected=NAME * 2, found=NAME, advice="Mend " + NAME * 3
            )
        ]

    def verdict(self) -> Verdict:
        entry = {"what": NAME, "transaction": NAME, "state": NAME, "resources": [NAME], NAME: NAME}
        strict = {
            "records": {NAME: 1},
            "transactions": {NAME: 1},
            "in_doubt": [entry],
            "lost": [NAME],
        }
        difference = Difference(NAME, NAME, NAME, NAME, file=NAME)
        return Verdict("fake", self.source.path, NAME, {}, strict, (difference,))


SYSTEM = System(
    name="fake",
    title=NAME,
    detector="tests.pipeline.fake:detect",
    reader="tests.cli.hostile:HostileReading",
)
