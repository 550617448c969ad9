"""The answers of all systems: the rows of their table of reasons, and the one rule that chooses.

In: rows of a table (`Reason`), what holds of one log (`Ground`s) and its findings. Out: a
`Judgement`. Each system states its rows in its module ``codes``; ``docs/verdicts.md`` lists them.
`SAFE <tallystick.records.Answer.SAFE>` needs a row of its own: without a ground, or beside damage
that no ground explains, the answer is that it cannot be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tallystick.records import Answer, AtStake, Finding, Judgement, Severity
from tallystick.systems.findings import Codes

NOTHING = AtStake(0, 0)
_UNKNOWN = AtStake()


@dataclass(frozen=True, slots=True)
class Reason:
    """One row of a table of reasons.

    Attributes:
        code: the slug in `Judgement.reason`, stable over releases.
        answer: what the reason proves.
        meaning: why, one sentence; the text of a judgement whose ground brings none.
        decided_by: of `Answer.CANNOT_TELL`: the file or fact that would decide it.
        after_crash: of `Answer.SAFE`: the end is what a crash of a sound machine leaves.
        archive: these are files that have left their log: what is open in them may have ended.
    """

    code: str
    answer: Answer
    meaning: str
    decided_by: str = ""
    after_crash: bool = False
    archive: bool = False


Reasons = Mapping[str, Reason]

DAMAGED = Reason(
    "damaged",
    Answer.CANNOT_TELL,
    "Bytes of the log are damaged, and what they held is not known.",
    "a copy of the log from before the damage",
)
NO_PROOF = Reason(
    "no-proof",
    Answer.CANNOT_TELL,
    "Nothing in the log proves that it is whole to its end.",
    "a copy of the log, or the data that it protects",
)
UNREADABLE = Reason(
    "unreadable",
    Answer.CANNOT_TELL,
    "A file of the log cannot be read.",
    "the file that cannot be read",
)
BEING_WRITTEN = Reason(
    "being-written",
    Answer.CANNOT_TELL,
    "The log changed each time while it was read; what looked damaged may be half written.",
    "a reading while its writer rests, or a copy that was taken at one moment",
)
BESIDE_THE_LOG = Reason(
    "beside-the-log",
    Answer.CANNOT_TELL,
    "A part that a restart opens besides the log is missing or cannot be read.",
    "that part",
)
PART_REFUSED = Reason(
    "part-refused",
    Answer.REFUSES,
    "The system does not start: a part that it opens besides the log is missing or does not fit.",
)
PART_LOST = Reason(
    "part-lost",
    Answer.LOSES,
    "A part that a restart opens besides the log is missing or does not fit, and what was "
    "acknowledged is lost with it.",
)
"""The rows that every table has; the last three are of what stands beside a log."""

_EVERYWHERE = (
    DAMAGED,
    NO_PROOF,
    UNREADABLE,
    BEING_WRITTEN,
    BESIDE_THE_LOG,
    PART_REFUSED,
    PART_LOST,
)

ENDS_IN_PREPARE = "ends-in-prepare"
"""The reason that the log of a coordinator may take away: reading the logs together does."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A reason that holds of one log.

    Attributes:
        code: a row of the system's table.
        text: the reason in the words of this log; empty for the meaning of the row.
        at_stake: how much it is about; nothing for `Answer.SAFE`.
        decided_by: as in `Reason`; empty for that of the row.
    """

    code: str
    text: str = ""
    at_stake: AtStake = _UNKNOWN
    decided_by: str = ""


def reasons(*rows: Reason) -> Reasons:
    """Return the rows as a table, with those that every table has.

    Raises:
        ValueError: a code stands in two rows, or a row that cannot tell does not say what would.
    """
    table = {row.code: row for row in _EVERYWHERE}
    for row in rows:
        if row.code in table:
            raise ValueError(f"the reason {row.code} stands twice in the table")
        if (row.answer is Answer.CANNOT_TELL) is not bool(row.decided_by):
            raise ValueError(f"the reason {row.code} has to say what would decide it, or must not")
        table[row.code] = row
    return table


NO_REASONS: Reasons = reasons()
"""The table of a system without reasons of its own."""

DECIDES_FIRST = (Answer.REFUSES, Answer.LOSES, Answer.CANNOT_TELL, Answer.SAFE)


def judgement_of(
    table: Reasons, codes: Codes, grounds: Iterable[Ground], findings: Iterable[Finding]
) -> Judgement:
    """Return the answer of the gravest ground; of equally grave ones the first decides.

    Where a file cannot be read, nothing else decides: what looks missing or refused may be in it.

    Args:
        table: the reasons of the system.
        codes: its codes of findings, which say what damage leaves every record readable.
        grounds: what holds of the log.
        findings: what was found in it: damage that takes records leaves no log safe.

    Raises:
        KeyError: the table has no row for a ground.
    """
    findings = list(findings)
    unread = next((one.message for one in findings if one.code == UNREADABLE.code), None)
    if unread is not None:
        stated = [Ground(UNREADABLE.code, unread)]
    else:
        stated = [*grounds, *_of_findings(codes, findings)]
    answers = {table[ground.code].answer for ground in stated}
    gravest = next((one for one in DECIDES_FIRST if one in answers), None)
    ground = next((one for one in stated if table[one.code].answer is gravest), None)
    ground = ground or Ground(NO_PROOF.code)
    row = table[ground.code]
    return Judgement(
        row.answer,
        row.code,
        ground.text or row.meaning,
        row.after_crash,
        NOTHING if row.answer is Answer.SAFE else ground.at_stake,
        ground.decided_by or row.decided_by,
    )


def being_written() -> Judgement:
    """Return the judgement of a log that changed each time while it was read."""
    row = BEING_WRITTEN
    return Judgement(row.answer, row.code, row.meaning, decided_by=row.decided_by)


def _of_findings(codes: Codes, findings: Iterable[Finding]) -> Iterable[Ground]:
    """Yield the ground that the first damage gives."""
    for one in findings:
        known = codes.get(one.code)
        if one.severity in (Severity.DAMAGE, Severity.LOSS) and not (known and known.whole):
            yield Ground(DAMAGED.code, one.message)
            return
