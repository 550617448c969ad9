"""Findings of all systems: the rows of their table of codes, and one builder.

In: rows of a table (`Code`), and what was found where. Out: `Finding` values with the severity and
the advice of their row. Each system states its rows in its module ``codes``; the
registry names them, and ``docs/findings.md`` is generated from the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.errors import LogUnreadableError
from tallystick.records import Finding, Severity


@dataclass(frozen=True, slots=True)
class Code:
    """One row of a table of codes.

    Attributes:
        code: the slug in `Finding.code`, stable over releases.
        severity: the usual severity; a finding may state another one.
        meaning: what is the case, one sentence for the documentation.
        advice: what to do next; None where nothing has to be done. A finding may state its own.
        whole: every record of the log is read in spite of it: it hides no decision.
        all_read: so is every record, but it may have the engine decide otherwise.
        sealed: the key of the log is missing or wrong: what the log holds is not known.
    """

    code: str
    severity: Severity
    meaning: str
    advice: str | None = None
    whole: bool = False
    all_read: bool = False
    sealed: bool = False


Codes = Mapping[str, Code]

UNREADABLE = Code(
    "unreadable",
    Severity.DAMAGE,
    "A file of the log cannot be read.",
    "Read it with the rights of its owner, from a whole disk, or from a copy",
)
"""The row for files that no reader can read; every table has it."""
BEING_WRITTEN = Code(
    "being-written",
    Severity.WARNING,
    "The log changed each time while it was read: what looked damaged may be half written.",
    "Read again while its writer rests, or read a copy that was taken at one moment (a snapshot)",
)
"""The row for logs that change while they are read; every table has it."""

NOT_SAFE = Code(
    "not-safe",
    Severity.WARNING,
    "The answer about the log is not SAFE, or its two verdicts differ, and no damage is found; or "
    "what a restart opens besides it is missing or does not fit.",
    "`tallystick explain` says why, and what would decide it",
)
"""The row for logs that only their verdict speaks against; every table has it."""
PACKED = Code(
    "packed-damaged",
    Severity.DAMAGE,
    "A packed file of the log is cut or damaged; what could be unpacked was read.",
    "Get the packed file again from where it was made: what lies after that place is not here",
)
"""The row for packed files that do not unpack to their end; every table has it."""


def codes(*rows: Code) -> Codes:
    """Return the rows as a table, with those that every table has.

    Raises:
        ValueError: a code stands in two rows, or damage has no next step.
    """
    table = {row.code: row for row in (UNREADABLE, BEING_WRITTEN, NOT_SAFE, PACKED)}
    for row in rows:
        if row.code in table:
            raise ValueError(f"the code {row.code} stands twice in the table")
        if row.severity in (Severity.DAMAGE, Severity.LOSS) and not row.advice:
            raise ValueError(f"the code {row.code} is damage and has no next step")
        table[row.code] = row
    return table


NO_CODES: Codes = codes()
"""The table of a system without findings of its own."""


@dataclass(frozen=True, slots=True)
class FindingBuilder:
    """Builds the findings of one log.

    Attributes:
        system: the name of the system.
        log: the name of the log.
        table: the rows of the system.
        file: the file of findings that name none.
    """

    system: str
    log: str
    table: Codes
    file: str | None = None

    def __call__(
        self,
        code: str,
        message: str,
        *,
        severity: Severity | None = None,
        file: str | None = None,
        offset: int | None = None,
        length: int | None = None,
        expected: str | None = None,
        found: str | None = None,
        advice: str | None = None,
        bytes_at_risk: int = 0,
        gtrid: bytes | None = None,
    ) -> Finding:
        """Return a finding; ``severity`` and ``advice`` are those of its row where not given.

        Raises:
            KeyError: the table has no row for ``code``.
        """
        row = self.table[code]
        return Finding(
            code,
            severity or row.severity,
            self.system,
            self.log,
            message,
            file=file or self.file,
            offset=offset,
            length=length,
            expected=expected,
            found=found,
            advice=advice or row.advice,
            bytes_at_risk=bytes_at_risk,
            gtrid=gtrid,
        )

    def unreadable(self, error: LogUnreadableError, code: str = UNREADABLE.code) -> Finding:
        """Return the finding for a file that could not be read; the error says why."""
        row = self.table[code]
        return Finding(
            code,
            row.severity,
            self.system,
            self.log,
            str(error),
            file=error.file,
            advice=error.advice,
        )
