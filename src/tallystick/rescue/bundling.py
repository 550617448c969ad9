"""A zip for a ticket: what the logs below a path are and what is said of them, without secrets.

In: paths. Out: a zip of text and JSON with versions, answers, findings, and a list of files with
digests of their first and last bytes. The same logs give the same bytes. No body of a record, no
key and no password is in it; names of hosts and users in addresses are masked.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

from tallystick import __version__
from tallystick.arguments import a_path
from tallystick.errors import LogUnreadableError
from tallystick.investigate.export import refuse_input, write_whole
from tallystick.posix import O_NOATIME, O_PLAIN
from tallystick.reading import explain, triage
from tallystick.reading.discovery import (
    PATH_UNREAD,
    Discovery,
    folders_below,
    path_of,
    unread_finding,
    with_password,
)
from tallystick.reading.survey import Paths, deliver, survey
from tallystick.records import Finding
from tallystick.storage.source import unreadable
from tallystick.systems.protocol import ReadOptions

SIZE_MAX = 16 << 20
"""Most bytes of all members together, unpacked."""
ENTRIES_MAX = 1000
"""Most entries of a list; how many more there are is said."""
_EDGE = 4096
"""Bytes at each end of a file that its digests are of."""
_BODIES = frozenset({"engine", "before", "after", "body", "row", "values", "value"})
"""Keys of what may hold bodies of records, in the words of any system."""
_WHEN = (1980, 1, 1, 0, 0, 0)
_MASKS = (
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,99}://)[^/\s\"'?#;]+"), r"\1***"),
    (
        # A word is looked at once, from its beginning: logs hold words of any length.
        re.compile(
            r"(?i)(?<!\w)(?=\w*?(?:password|passwd|pwd|secret|token|user|key))(\w+=)[^&;\s\"']+"
        ),
        r"\1***",
    ),
    (re.compile(r"(['\"])(?:(?!\1).){32,}\1"), r"\1***\1"),
    (re.compile(r"\b[0-9a-fA-F]{300,}\b"), "***"),
)
"""What stands for hosts and users of URLs, for values of settings that may be secret, for long
quotations and for more hex digits than an id has."""


def bundle(
    path: Paths,
    target: str | os.PathLike[str] | IO[bytes],
    *,
    options: ReadOptions | None = None,
    size_max: int = SIZE_MAX,
    problems: list[Finding] | None = None,
) -> int:
    """Write the zip for a ticket about the logs below ``path``; return how many members it has.

    It appears under its name when it is complete, and replaces an older one. It is the same for
    every spelling of ``path``. Several paths are one estate. Files and folders that cannot be read
    are in it by name, and are appended to ``problems``; without such a list the first is raised.

    Raises:
        LogUnreadableError: a path cannot be read.
        LogWriteError: the target is a log, or lies inside one of the paths.
    """
    given = [path] if isinstance(path, str | os.PathLike) else path
    options = with_password([os.fspath(one) for one in given], options)
    origins = [*dict.fromkeys(map(_origin, given))]
    refuse_input(target, origins, options)
    members = dict(_members(origins, options, problems))
    return write_whole(target, lambda out: _pack(out, members, size_max))


def _origin(path: str | os.PathLike[str]) -> Path:
    origin = Path(path_of(a_path(path)))
    # The name of a file stays: by it logs are known.
    return origin.resolve() if origin.is_dir() else origin.parent.resolve() / origin.name


def _pack(out: IO[bytes], members: Mapping[str, str], size_max: int) -> int:
    left_out, room, whole = [], size_max, io.BytesIO()  # a device, as /dev/null, has no places
    with zipfile.ZipFile(whole, "w") as packed:
        for name, text in members.items():
            data = text.encode("utf-8", "backslashreplace")
            if len(data) > room:
                left_out.append(f"{name}: {len(data)} bytes\n")
                continue
            room -= len(data)
            _add(packed, name, data)
        if left_out:
            _add(packed, "left-out.txt", "".join(left_out).encode())
        count = len(packed.namelist())
    out.write(whole.getvalue())
    return count


def _add(packed: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, _WHEN)
    info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
    packed.writestr(info, data)


def _members(
    origins: Sequence[Path], options: ReadOptions | None, problems: list[Finding] | None
) -> Iterator[tuple[str, str]]:
    """Yield names and texts, what is asked for first at the beginning."""
    names = {path: f"PATH{number}" for number, path in enumerate(origins, 1)}
    if len(origins) == 1:
        names = {origins[0]: "PATH"}
    hidden = _Hidden(names)
    answers, explained = triage(origins, options=options), explain(origins, options=options)
    for problem in explained.problems:
        if problem.code == PATH_UNREAD:
            raise LogUnreadableError(problem.message, file=problem.file, advice=problem.advice)
    folders = [one for one in origins if one.is_dir()]
    logs = survey(folders, options=options).logs if folders else []
    files = list(_files(names, [file for one in logs for file in one.files], explained.problems))
    deliver(explained, problems)
    versions = {
        "tallystick": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    yield "versions.json", hidden.json(versions)
    yield "triage.json", hidden.json(answers.to_dict())
    yield "files.json", hidden.json(files)
    for at, (verdict, found) in enumerate(zip(explained.logs, explained.findings, strict=True), 1):
        lines = [str(verdict), *map(str, found)]
        yield f"logs/{at:04}-{verdict.system}.txt", hidden.text("\n".join(lines)) + "\n"
    yield "explain.json", hidden.json(explained.to_dict())


def _files(
    origins: Mapping[Path, str], of_logs: Iterable[str], problems: list[Finding]
) -> Iterator[dict[str, Any]]:
    """Yield every regular file with its size and digests of its ends; links are not followed.

    Of a log that lies elsewhere its files are among them. One that cannot be read is told, and is
    one of ``problems``.
    """
    known = {problem.file for problem in problems}
    seen = set[str]()
    for path, name in chain(_named(origins), _named_elsewhere(origins, of_logs)):
        if (real := os.path.realpath(path)) in seen or path.is_symlink():
            continue
        seen.add(real)
        told: dict[str, Any] = {"file": name}
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                continue
            with open(path, "rb", opener=_opened) as file:
                first = file.read(_EDGE)
                file.seek(max(status.st_size - _EDGE, 0))
                last = file.read(_EDGE)
            told |= {"size": status.st_size, "first": _digest(first), "last": _digest(last)}
        except OSError as error:
            told["error"] = type(error).__name__
            if str(path) not in known:
                problems.append(unread_finding(unreadable(str(path), error), str(path.parent)))
        yield told


def _named(origins: Mapping[Path, str]) -> Iterator[tuple[Path, str]]:
    """Yield the files below each path, and how they are called."""
    for origin, called in origins.items():
        for path in _files_below(origin):
            name = os.path.relpath(path, origin)
            yield path, os.path.normpath(f"{called}/{name}") if len(origins) > 1 else name


def _named_elsewhere(
    origins: Mapping[Path, str], of_logs: Iterable[str]
) -> Iterator[tuple[Path, str]]:
    """Yield the files of logs; of one that a link leads to with the name that the link gives it."""
    for path in map(Path, sorted(of_logs)):
        name = str(path)
        for origin, called in origins.items():
            if path.is_relative_to(origin):
                name = os.path.normpath(Path(called * (len(origins) > 1), path.relative_to(origin)))
        yield path, name


def _files_below(origin: Path) -> Iterator[Path]:
    if origin.is_file():
        yield origin
        return
    # Folders that cannot be listed are among the problems of what is read below the same path.
    for folder in folders_below(str(origin), Discovery(), recurse=True):
        yield from (Path(entry.path) for entry in folder.entries)


def _opened(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | O_NOATIME | O_PLAIN)
    except PermissionError:  # only the owner may leave the time of access alone
        return os.open(path, flags | O_PLAIN)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _Hidden:
    """Texts and values without what is secret, and without where on this machine they are."""

    def __init__(self, origins: Mapping[Path, str]) -> None:
        places = {str(origin): name for origin, name in origins.items()}
        places |= {os.path.realpath(origin): name for origin, name in origins.items()}
        places[str(Path.home())] = "~"
        # What lies in another comes before it.
        inner = sorted(places.items(), key=lambda one: -len(one[0]))
        self._places = {place: name for place, name in inner if len(place) > 1}

    def text(self, text: str) -> str:
        """Return a text of any length."""
        for place, name in self._places.items():
            text = text.replace(place, name)
        for pattern, mask in _MASKS:
            text = pattern.sub(mask, text)
        return text

    def json(self, value: Any) -> str:
        """Return a value as JSON."""
        return json.dumps(self._bare(value), indent=1) + "\n"

    def _bare(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case Mapping():
                kept = {key: one for key, one in value.items() if key not in _BODIES}
                return {self.text(str(key)): self._bare(one) for key, one in kept.items()}
            case Sequence():
                rest = len(value) - ENTRIES_MAX
                shown = [self._bare(one) for one in value[:ENTRIES_MAX]]
                return [*shown, f"and {rest:,} more"] if rest > 0 else shown
            case _:
                return value
