"""Render self-contained HTML pages: no external requests, no external scripts.

In: the folder of the tables. Out: one HTML file with its pictures, styles and scripts inside; where
there are many logs also a folder beside it, with such a page for each log that has anything to say.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tallystick import __version__
from tallystick.errors import LogWriteError, MissingExtraError
from tallystick.investigate.export import refuse_input, write_whole
from tallystick.printable import counted, printable, printable_lines
from tallystick.records import Answer, State
from tallystick.refusals import reason_of
from tallystick.report.cards import RESOLUTIONS, Names, cards, headline
from tallystick.report.data import (
    ANSWERS,
    OUTCOMES,
    PLACES,
    SEVERITIES,
    ReportData,
    load,
)
from tallystick.report.pictures import HEIGHT, WIDTH, lines, stripes
from tallystick.storage.local import LOCAL

if TYPE_CHECKING:
    import jinja2

ROWS_SHOWN = 12
"""Rows of a list that are shown at first."""

_OPEN = (State.PREPARED, State.COMMITTING, State.UNDECIDED, State.ROLLING_BACK, State.HEURISTIC)
"""States that a person looks for: their columns come first."""

_PAGE = re.compile(r"[0-9a-f]{16}\.html|index\.html")
"""Names of the pages of logs."""


def write_report(tables: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Write the report on the tables in a folder; returns the absolute path of its first page.

    Of more than 200 logs those with anything to say have pages in the folder ``TARGET-logs``,
    where TARGET is the path without ``.html``; beside a pipe or a device there is no such folder.

    Raises `LogUnreadableError` where tables are missing, `LogWriteError` where a page cannot be
    written, or would take the place of what belongs to a log.
    """
    path = Path(target).absolute()
    refuse_input(path, [])
    folder = path.with_name(f"{path.stem}-logs")
    data = load(Path(tables))
    if not (beside := _has_place_beside(path)):
        data.of_log.clear()
    pages = _Pages(str(tables), data, *(quote(os.fsencode(one.name)) for one in (path, folder)))
    try:
        LOCAL.mkdir(str(path.parent))
        if data.of_log:
            LOCAL.mkdir(str(folder))
            for name, text in pages.of_logs():
                _write(folder / name, text)
        _write(path, pages.first())
        if beside:
            _remove_others(folder, {*pages.names.values(), "index.html"} if data.of_log else set())
    except OSError as error:
        raise LogWriteError(
            f"cannot write the report: {reason_of(error)}", file=str(path)
        ) from error
    return path


def _has_place_beside(path: Path) -> bool:
    """Return whether a folder may lie beside a page: not of a pipe, or of our own output."""
    named = str(path.parent) in ("/dev", "/dev/fd", "/proc/self/fd")
    return not named and (path.is_file() or not path.exists())


def _write(path: Path, text: str) -> None:
    write_whole(path, lambda out: out.write(text.encode(errors="backslashreplace")))


def _remove_others(folder: Path, kept: set[str]) -> None:
    """Remove pages of logs that an earlier report wrote, and nothing else."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if _PAGE.fullmatch(path.name) and path.name not in kept:
            path.unlink()
    if not kept:
        with suppress(OSError):  # something else lies there
            folder.rmdir()


class _Pages:
    """The pages of a report as text."""

    def __init__(self, tables: str, data: ReportData, first: str, folder: str) -> None:
        self._tables = tables
        self._data = data
        self._first = first
        self._folder = folder
        self._now = datetime.now(UTC)
        self._all = Names(data.systems)
        self._environment = _environment()
        self.names = {
            log: f"{blake2b(log.encode(errors='surrogateescape'), digest_size=8).hexdigest()}.html"
            for log in data.of_log
        }
        """The page of each log, in the folder."""

    def first(self) -> str:
        """Return the page about all logs."""
        pages = {log: f"{self._folder}/{name}" for log, name in self.names.items()}
        return self._page(self._data, pages, index=f"{self._folder}/index.html" if pages else "")

    def of_logs(self) -> Iterator[tuple[str, str]]:
        """Yield names and texts of the pages of logs, and of the list of them."""
        for log, part in self._data.of_log.items():
            yield self.names[log], self._page(part, {}, back=f"../{self._first}")
        listed = [
            (log, self.names[log], ", ".join(part.answered))
            for log, part in sorted(self._data.of_log.items())
        ]
        yield "index.html", self._environment.get_template("index.html.j2").render(
            title=f"{counted(len(listed), 'log')} with something to say", logs=listed,
            back=f"../{self._first}", names=self._all,
            rows_shown=1000, outcomes=OUTCOMES,
        )  # fmt: skip

    def _page(
        self, data: ReportData, pages: dict[str, str], *, back: str = "", index: str = ""
    ) -> str:
        head, made = headline(data, self._all), cards(data, self._all, self._now)
        kinds = Counter(one.kind for one in made)
        words = {str(key): value for key, value in RESOLUTIONS.items()}
        used = {
            state for counts in data.states.values() for state, count in counts.items() if count
        }
        order = [*_OPEN, *(state for state in State if state not in _OPEN)]
        return self._environment.get_template("report.html.j2").render(
            title=head.text,
            headline=head,
            cards=made,
            kinds=[(kind, words.get(kind, kind.replace("-", " ")), n) for kind, n in kinds.items()],
            data=data,
            names=self._all,
            pages=pages,
            index=index,
            back=back,
            tables=self._tables,
            version=__version__,
            now=self._now.strftime("%Y-%m-%d %H:%M UTC"),
            due=sum(data.resolutions.values()) - data.resolutions["none"],
            safe_line=_safe_line(data),
            answer_kinds=[(one, one.replace("-", " "), data.answered[one]) for one in ANSWERS],
            severities=[(one, one, data.severities[one]) for one in SEVERITIES],
            states=[state.value for state in order if state.value in used],
            open_states=[state.value for state in _OPEN],
            outcomes=OUTCOMES,
            mapped=[
                one for one in OUTCOMES if any(one[0] in places for places in data.maps.values())
            ],
            stripes=stripes,
            places=PLACES,
            pins=_pins(data),
            lines=lines(data),
            width=WIDTH,
            height=HEIGHT,
            rows_shown=ROWS_SHOWN,
            carded={one.gtrid for one in made},
        )


def _pins(data: ReportData) -> dict[str, list[tuple[float, str]]]:
    """Return where findings stand in the map of each file."""
    sizes = {row["file"]: row["size"] for row in data.files}
    found: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for row in data.findings:
        if row["offset"] is not None and sizes.get(row["file"]):
            place = round(row["offset"] * PLACES / sizes[row["file"]], 1)
            found[row["file"]].append((place, f"{row['code']} at {row['offset']:,}"))
    return found


def _safe_line(data: ReportData) -> str:
    """Return how many logs are safe, in a line that unfolds to all of them."""
    safe, count = data.answered[Answer.SAFE.value], data.answered.total()
    verb = "is safe" if 1 in (safe, count) else "are safe"
    crash = f", {data.after_crash:,} of them as a crash leaves a log" if data.after_crash else ""
    return f"{safe:,} of {counted(count, 'log')} {verb}{crash}"


def _environment() -> jinja2.Environment:
    try:
        import jinja2
        import markupsafe
    except ImportError as error:
        raise MissingExtraError(str(error.name), "report") from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tallystick.report", "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["words"] = lambda value: value.replace("_", " ")
    environment.filters["dashed"] = lambda value: value.replace("-", " ")
    environment.filters["counted"] = counted
    environment.filters["lined"] = lambda value: markupsafe.escape(printable_lines(value))
    return environment


def _shown(value: Any) -> Any:
    """Escape control characters and marks of direction in what logs said, not in our scripts."""
    return printable(value) if type(value) is str else value
