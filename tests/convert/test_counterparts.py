"""What a conversion carries, and what has no counterpart: the table of the guide on moving.

A log with one of everything is converted to each system of its role; the reports are the table.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from tallystick import Journal
from tallystick.convert.command import CONVERTIBLE, ConversionReport, convert
from tallystick.errors import TallystickError
from tallystick.records import Xid
from tallystick.roles import DecisionOutcome, Operation, OperationCode, Role
from tallystick.systems.registry import open_decision_log, open_persist_log, systems_with

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "moving.md"


def _decisions(path: Path, system: str) -> None:
    with closing(open_decision_log(path, system)) as log:
        for number, name in enumerate(("a", "ä", "n" * 40_000)):
            with suppress(TallystickError):  # Bitronix has no such names
                log.decide(b"decided %d" % number, [name, "b"]).wait()
        log.decide(b"settled", ["a", "b"]).wait()
        log.finish(b"settled", ["a", "b"], DecisionOutcome.HEURISTIC)


def _journal(path: Path, system: str) -> None:
    native = system == "tally"
    with Journal(path, system=system) as log:
        log.add(1, b"record")
        log.update(1, b"update")
        log.add(2, b"record")
        with log.transaction() as tx:
            tx.add(3, b"in doubt")
            if native:
                tx.prepare(xid=Xid(1, b"gtrid", b"bqual"))
            else:
                tx.prepare(b"extra")
        if native:
            log.append(b"plain")
            with log.transaction() as tx:
                tx.append(b"plain in doubt")
                tx.prepare()
            with log.transaction() as tx:
                tx.delete(2)
                tx.add(2, b"again")
                tx.prepare()


def _entries(path: Path, system: str) -> None:
    with closing(open_persist_log(path, system)) as log:
        operation = Operation(OperationCode.INSERT, "orders", b"key", b"value", "one")
        log.persisting(["one", "two"], [operation], "reference")[1].wait()


MADE: dict[Role, Callable[[Path, str], None]] = {
    Role.DECISION_LOG: _decisions,
    Role.RECORD_JOURNAL: _journal,
    Role.PERSIST_LOG: _entries,
}


def _row(report: ConversionReport) -> str:
    left = []
    for kind, names in report.named.items():
        reasons = dict.fromkeys(name.partition(" (")[2].removesuffix(")") for name in names)
        left.append(f"{kind}: {', or '.join(reasons)}")
    ways = f"{report.role}: {report.source_system} to {report.target_system}"
    return f"| {ways} | {', '.join(report.carried)} | {'; '.join(left) or 'nothing'} |"


def test_the_page_says_what_is_carried_and_what_has_no_counterpart(tmp_path: Path) -> None:
    assert MADE.keys() == set(CONVERTIBLE)
    rows = []
    for role, make in MADE.items():
        for own in systems_with(role):
            source = tmp_path / role.value / own
            make(source, own)
            rows += [_row(convert(source, f"{source} {to}", to)) for to in systems_with(role)]
    assert len(rows) == 12
    assert "|---|---|---|\n" + "\n".join(rows) + "\n" in PAGE.read_text("utf-8")
