"""Where findings of one file belong.

In: what is to be said. Out: a `Finding` with the names of log and file.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.records import Finding, Severity
from tallystick.systems.h2.format.layout import SYSTEM_NAME


@dataclass(frozen=True, slots=True)
class Place:
    """Where findings of one file belong."""

    log: str
    file: str

    def finding(
        self,
        code: str,
        severity: Severity,
        message: str,
        *,
        advice: str | None = None,
        offset: int | None = None,
        risk: int = 0,
        gtrid: bytes | None = None,
    ) -> Finding:
        return Finding(
            code,
            severity,
            SYSTEM_NAME,
            self.log,
            message,
            file=self.file,
            offset=offset,
            advice=advice,
            bytes_at_risk=risk,
            gtrid=gtrid,
        )
