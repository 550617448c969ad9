"""Addresses of logs and databases as commands take them: PATH, ``NAME=URL``.

In: what is typed, or copied from a setting. Out: for a PATH the path of the file or folder that it
names; of a repeated option what it gives, by name. A SQLite database that does not exist is
refused, as opening it would make an empty one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click

from tallystick.reading.discovery import password_in, path_of

_PASSWORDS = "tallystick.passwords"


def given_password() -> str | None:
    """Return the password of the files that the URLs of this command give; None without one.

    Raises:
        BadParameter: they give several.
    """
    context = click.get_current_context(silent=True)
    found = set() if context is None else context.meta.get(_PASSWORDS, set())
    if len(found) > 1:
        raise click.BadParameter("the URLs have several passwords: name one after another")
    return next(iter(found), None)


class GivenPath(click.Path):
    """The path of what is read, also given as a URL of JDBC or a ``file:`` one, or in quotes."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return the path, or leave with a usage error; the password of a URL is kept apart."""
        given = path_of(value) if isinstance(value, str) else value
        if ctx is not None and isinstance(value, str) and (password := password_in(value)):
            ctx.meta.setdefault(_PASSWORDS, set()).add(password)
        return super().convert(given, param, ctx)


def by_name(values: Iterable[str], option: str, value: str = "URL") -> dict[str, str]:
    """Return what is given as ``NAME=URL``.

    Args:
        values: what was given; it may hold a password, so no message has it.
        option: the option, for messages.
        value: what stands after the name, for messages.

    Raises:
        BadParameter: a value has no name, or the name of another one.
    """
    found: dict[str, str] = {}
    for one in values:
        name, separator, rest = one.partition("=")
        if not separator:
            raise click.BadParameter(f"not NAME={value}", param_hint=option)
        if name in found:
            message = f"{name!r} is given twice: nobody knows which of them is meant"
            raise click.BadParameter(message, param_hint=option)
        found[name] = rest
    return found


def require_database(name: str, url: str, option: str) -> None:
    """Refuse a SQLite database that is not there, or in memory; other URLs pass.

    Args:
        name: the name that was given for it.
        url: its URL.
        option: the option, for messages.

    Raises:
        BadParameter: there is no such file.
    """
    if not url.startswith("sqlite"):
        return
    path = unquote(url.partition(":///")[2].partition("?")[0]).removeprefix("file:")
    if not path or path == ":memory:":
        message = f"{name!r} is a database in memory: it would be gone with this command"
        raise click.BadParameter(message, param_hint=option)
    if not Path(path).is_file():
        message = f"{name!r}: there is no database {path}; opening it would make an empty one"
        raise click.BadParameter(message, param_hint=option)
