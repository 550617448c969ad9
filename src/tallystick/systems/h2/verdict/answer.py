"""What the engine does with the changes of a log when it opens the file, and why that can be said.

In: an `EngineResult` and its findings. Out: the `Ground`s of the answer. The engine acknowledges
before it writes: with its default WRITE_DELAY the commits of the last 500 ms are in no file. So an
end as a crash leaves it is safe but for these, and the text says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallystick.records import AtStake, Finding, Severity
from tallystick.systems.answers import Ground
from tallystick.systems.h2.engine.digest import LogDigest
from tallystick.systems.h2.engine.opening import EngineResult
from tallystick.systems.h2.format.entries import Type
from tallystick.systems.h2.read.files import OpenedFile
from tallystick.systems.h2.verdict.closed import not_closed
from tallystick.systems.h2.verdict.losses import lost_with

_SURE = frozenset({"file-would-be-replaced", "table-page-empty"})
"""Codes of losses that are certain although the log does not count them."""
_PAGE_ENDS: dict[int, str] = {
    Type.CHECKPOINT: "ends-in-checkpoint",
    Type.PREPARE_COMMIT: "ends-in-prepare",
}
"""Records after which a page is filled with zeros and the log goes on with the next one."""


def grounds(result: EngineResult, findings: Sequence[Finding]) -> Iterator[Ground]:
    """Yield what holds of the file."""
    opening, file = result.opening, result.file
    if file.encrypted:
        yield Ground("encrypted")
        return
    if not opening.opened and not _differs_by_version(result):
        text = f"The database does not open: error {opening.error_code}, {opening.error}."
        decided = None if result.digest is None else result.digest.decided
        yield Ground("does-not-open", text, AtStake(decided))
    yield from _losses(result, findings)
    if result.digest is not None and opening.opened:
        yield from _proof(file, result.digest)


def _differs_by_version(result: EngineResult) -> bool:
    """Return True if the error comes after damage that not every version of the engine reads alike.

    1.3.176 stops redo at a type that it does not know, and opens the database.
    """
    begin = None if result.digest is None else result.digest.versions_differ_from
    if begin is None or result.recovery is None:
        return False
    return bool(result.recovery.end.error) or result.opening.redone_before >= begin


def _losses(result: EngineResult, findings: Sequence[Finding]) -> Iterator[Ground]:
    losses = [one for one in findings if one.severity is Severity.LOSS]
    counted = [(one, lost_with(result, one.code)) for one in losses]
    known = [loss for _, loss in counted if loss is not None]
    commits, rows = sum(one.commits for one in known), sum(one.rows for one in known)
    for one, loss in counted:
        if one.code in _SURE or (loss is not None and (loss.commits or loss.rows)):
            yield Ground("changes-lost", one.message, AtStake(commits or None, rows or None))


def _proof(file: OpenedFile, digest: LogDigest) -> Iterator[Ground]:
    header, stream = file.header, digest.stream
    if file.size % stream.pages.page_size:
        yield Ground("odd-size", f"The file ends inside page {stream.pages.page_count}.")
    if header is not None and not header.first_trunk and not header.first_data:
        others = [one for one in stream.pages.headers() if one is not None and one != header]
        if not others and (found := not_closed(stream.pages, header, file.zone)):
            yield Ground("log-not-named", found)
            return
        yield Ground("closed-in-one-copy" if others else "log-closed")
        return
    for start in digest.after_fill:
        place = stream.file_offset(start)
        yield Ground("record-after-fill", f"Zeros stand before the record at {place}.")
    if digest.last is None:
        return
    if digest.last.code in _PAGE_ENDS:
        yield Ground(_PAGE_ENDS[digest.last.code])
    else:
        yield Ground("flushed-end" if digest.filled else "full-last-page")
