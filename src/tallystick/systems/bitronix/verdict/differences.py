"""What a restart of 2.1.4 does against what the bytes prove, in words for an operator.

In: both files, the decisions that are open according to the bytes, and what 2.1.4 does with
``skipCorruptedLogs`` off and on. Out: a `Difference` for a refused start, for the wrong file in
use, and for each decision that a restart loses, revives or takes to be open elsewhere.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from tallystick.records import Difference, Severity
from tallystick.systems.bitronix.engine.opening import Starts
from tallystick.systems.bitronix.read.files import DualFiles
from tallystick.systems.bitronix.read.open_decisions import OpenDecisions

_DECISION = "decision "
_EMPTY = "(empty)"
_NOT_KNOWN = "not known: its branches are rolled back"


def differences(
    pair: DualFiles, strict_open: OpenDecisions, starts: Starts, unforced: Container[bytes] = ()
) -> Iterator[Difference]:
    """Yield the differences; ``starts`` are those of 2.1.4, ``unforced`` as in `Evidence`."""
    yield from _about_start(pair, starts)
    skipping = starts.skipping
    if skipping.active is None:
        return
    yield from _about_file(pair, skipping.active)
    if skipping.collect_error is None:
        how = "" if starts.without.collect_error is None else ", started with skipCorruptedLogs,"
        yield from _about_decisions(strict_open, skipping.decisions, how, unforced)


def _about_start(pair: DualFiles, starts: Starts) -> Iterator[Difference]:
    without, skipping = starts
    if without.hangs:
        yield _start(pair, "does not come back", "The manager hangs at start and says nothing.")
    elif without.refusal:
        way = "It does not start with skipCorruptedLogs either."
        if not skipping.refusal:
            way = "With skipCorruptedLogs it starts, and drops what it cannot read."
        yield _start(pair, f"refuses: {without.refusal}", f"The manager does not start. {way}")


def _start(pair: DualFiles, engine: str, meaning: str) -> Difference:
    strict = "the whole records can be read, and are listed"
    if all(part.header is None for part in pair.parts):
        strict = "nothing can be read: neither file has a whole header"
    return Difference("start", engine, strict, meaning, Severity.DAMAGE, refuses=True)


def _about_file(pair: DualFiles, active: int) -> Iterator[Difference]:
    later = pair.order()[1]
    if active + 1 != later.number:
        yield Difference(
            "file in use",
            f"part {active + 1}",
            f"part {later.number}",
            f"The manager opens part {active + 1}, which is the older file. Its next change of "
            f"files overwrites part {later.number}, the newer one.",
            Severity.DAMAGE,
            later.path,
            0,
        )


def _about_decisions(
    strict: OpenDecisions, engine: OpenDecisions, how: str, unforced: Container[bytes]
) -> Iterator[Difference]:
    if strict == engine:  # as nearly always; sorting many decisions takes long
        return
    for gtrid in sorted(strict.keys() | engine.keys()):
        proved, assumed = strict.get(gtrid), engine.get(gtrid)
        if proved is not None and assumed is None:
            in_doubt = gtrid in unforced
            yield _unforced(gtrid, proved) if in_doubt else _lost(gtrid, proved, how)
        elif assumed is not None and proved is None:
            yield _revived(gtrid, assumed, how)
        elif proved is not None and assumed is not None and proved != assumed:
            yield _other_names(gtrid, proved, assumed, how)


def lost_decisions(found: Iterable[Difference]) -> set[bytes]:
    """Return the gtrids of the decisions to commit that a restart loses."""
    return _named(one for one in found if one.severity is Severity.LOSS)


def doubtful_decisions(found: Iterable[Difference]) -> set[bytes]:
    """Return the gtrids of those that a restart does not know, and that a crash leaves so."""
    return _named(
        one for one in found if one.engine == _NOT_KNOWN and one.severity is not Severity.LOSS
    )


def is_about_one_of(gtrids: Container[bytes], one: Difference) -> bool:
    """Return whether a difference is about the decision of one of these transactions."""
    return any(gtrid in gtrids for gtrid in _named([one]))


def _named(found: Iterable[Difference]) -> set[bytes]:
    names = (one.what.partition(_DECISION)[2] for one in found)
    return {bytes.fromhex(name) for name in names if name and name != _EMPTY}


def _lost(gtrid: bytes, proved: tuple[str, ...], how: str) -> Difference:
    names = ", ".join(proved) or "no resource"
    return Difference(
        f"{_DECISION}{_hex(gtrid)}",
        _NOT_KNOWN,
        f"commit, still open on {names}",
        f"A restart{how} loses the decision to commit {_hex(gtrid)}: branches prepared on {names} "
        "are rolled back, although others may have committed.",
    )


def _unforced(gtrid: bytes, proved: tuple[str, ...]) -> Difference:
    names = ", ".join(proved) or "no resource"
    return Difference(
        f"{_DECISION}{_hex(gtrid)}",
        _NOT_KNOWN,
        f"commit, open on {names}, which the file header does not count",
        f"A restart does not know the decision to commit {_hex(gtrid)} and rolls back what is "
        f"prepared on {names}. A crash before it was forced leaves it so, and then none of its "
        "branches was committed.",
        Severity.DAMAGE,
    )


def _revived(gtrid: bytes, assumed: tuple[str, ...], how: str) -> Difference:
    names = ", ".join(assumed) or "no resource"
    return Difference(
        f"{_DECISION}{_hex(gtrid)}",
        f"commit, still open on {names}",
        "closed: a later record says so",
        f"A restart{how} revives the decision {_hex(gtrid)} that was closed already: it commits "
        f"any branch left on {names}.",
        Severity.DAMAGE,
    )


def _other_names(
    gtrid: bytes, proved: tuple[str, ...], assumed: tuple[str, ...], how: str
) -> Difference:
    return Difference(
        f"{_DECISION}{_hex(gtrid)}",
        f"open on {', '.join(assumed) or 'no resource'}",
        f"open on {', '.join(proved) or 'no resource'}",
        f"A restart{how} takes the decision {_hex(gtrid)} to be open on other resources than the "
        "records say.",
        Severity.LOSS if set(proved) - set(assumed) else Severity.DAMAGE,
    )


def _hex(gtrid: bytes) -> str:
    return gtrid.hex() or _EMPTY
