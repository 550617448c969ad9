"""Judge a place where a group is due: the decision table, as code.

In: five facts about the place. Out: a `Case`. A test walks all 32 combinations and demands
that exactly one row matches each; ``docs/formats/tally.md`` prints the same rows.

The facts
    lead     the leading header is whole, and of this log, segment and place
    trail    so is the trailing one
    inner    the checksum of what lies between fits (as a whole header says)
    follows  LSN and chain continue the group before
    known    something else says that this LSN was durable: a later group, the index, the next
             segment's header, or the control block

    lead   trail  inner  follows  known   case       what recovery does
    yes    yes    yes    yes      -       VALID      uses it
    yes    no     yes    yes      -       REPAIRED   uses it, and reports the header
    no     yes    yes    yes      -       REPAIRED   same
    one or both   no     -        yes     CORRUPT    refuses: acknowledged data is damaged
    one or both   no     -        no      TORN       cuts here: it was never acknowledged
    one or both   yes    no       yes     CORRUPT    refuses: acknowledged data is missing here
    one or both   yes    no       no      TORN       cuts here: left by an attempt already cut
    no     no     -      -        yes     CORRUPT    refuses: an acknowledged group is gone
    no     no     -      -        no      END        the log ends here

The limit: of the very last group nothing is ``known`` until a later write proves it. Rot in it is
therefore taken for a torn write. An idle or closing log notes in its control block what is
durable, which ends that window.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Case(StrEnum):
    """What is at a place where a group is due."""

    VALID = "valid"
    REPAIRED = "repaired"
    CORRUPT = "corrupt"
    TORN = "torn"
    END = "end"

    @property
    def whole(self) -> bool:
        """True if a whole group is there, which is used."""
        return self in (Case.VALID, Case.REPAIRED)


class Facts(NamedTuple):
    """The five facts about a place, each true or false."""

    lead: bool
    trail: bool
    inner: bool
    follows: bool
    known: bool


Row = tuple[bool | None, bool | None, bool | None, bool | None, bool | None, Case]

TABLE: Final[tuple[Row, ...]] = (
    # lead   trail  inner  follows  known
    (True, True, True, True, None, Case.VALID),
    (True, False, True, True, None, Case.REPAIRED),
    (False, True, True, True, None, Case.REPAIRED),
    (True, None, False, None, True, Case.CORRUPT),
    (True, None, False, None, False, Case.TORN),
    (False, True, False, None, True, Case.CORRUPT),
    (False, True, False, None, False, Case.TORN),
    (True, None, True, False, True, Case.CORRUPT),
    (True, None, True, False, False, Case.TORN),
    (False, True, True, False, True, Case.CORRUPT),
    (False, True, True, False, False, Case.TORN),
    (False, False, None, None, True, Case.CORRUPT),
    (False, False, None, None, False, Case.END),
)
"""The rows in the order of the docstring; None stands for either."""


def matches(row: Row, facts: Facts) -> bool:
    """Return True if the row applies to these facts."""
    return all(want is None or want == is_ for want, is_ in zip(row[:5], facts, strict=True))


_CASES: Final[dict[Facts, Case]] = {
    facts: row[5]
    for number in range(1 << 5)
    for facts in (Facts(*(bool(number >> bit & 1) for bit in range(5))),)
    for row in TABLE
    if matches(row, facts)
}


def decide(facts: Facts) -> Case:
    """Return the case of a place."""
    return _CASES[facts]
