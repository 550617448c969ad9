"""The options of the one language of filters, which every command that lists things takes.

In: what a person types. Out: a `Filter`. Its ids are found by the library.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from tallystick.reading.filters import Filter
from tallystick.records import Fate

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _moment(_: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Return a time as ISO 8601 has it. Raises `click.BadParameter`."""
    try:
        return None if value is None else datetime.fromisoformat(value)
    except ValueError as error:
        text = f"{value!r} is no time. Expected as 2026-07-05T03:00:00Z"
        raise click.BadParameter(text, param=param) from error


COLLECTION_HELP = "Table, queue or resource."
_OPTIONS = (
    click.option("--transaction", help="Number of the transaction in its log."),
    click.option("--gtrid", help="Global transaction, by the beginning of its id in any spelling."),
    click.option("--key", help="Key of the row, or id of the record."),
    click.option(
        "--since",
        metavar="TIME",
        callback=_moment,
        help="Not before this time; UTC unless it has a zone.",
    ),
    click.option("--until", metavar="TIME", callback=_moment, help="Not after this time."),
)


def filter_options(command: _Command) -> _Command:
    """Add the options of the filter that every command has."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def wanted_of(options: dict[str, Any], fates: frozenset[Fate] = frozenset()) -> Filter:
    """Take the options of the filter out of all options, and return the filter."""
    names = ("transaction", "gtrid", "key", "since", "until")
    return Filter(
        fates, table=options.pop("collection", None), **{n: options.pop(n) for n in names}
    )
