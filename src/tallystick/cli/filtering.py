"""The options of the one language of filters, which every command that lists things takes.

In: what a person types. Out: a `Filter`. Its ids are found by the library.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from tallystick.arguments import moment
from tallystick.reading.filters import Filter, ns_of
from tallystick.records import Fate, Kind

_Command = TypeVar("_Command", bound=Callable[..., Any])


def moment_of(_: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Return a time as ISO 8601 has it. Raises `click.BadParameter`."""
    try:
        return None if value is None else moment(value)
    except ValueError as error:
        text = f"{value!r} is no time. Expected as 2026-07-05T03:00:00Z"
        raise click.BadParameter(text, param=param) from error


def last_moment_of(
    context: click.Context, param: click.Parameter, value: str | None
) -> datetime | None:
    """Return the last microsecond of what a time names: a day, a minute, a millisecond."""
    named_time = moment_of(context, param, value)
    named = _NAMED.match(value or "")
    if named_time is None or named is None:
        return named_time
    hour, minute, second, fraction = named.groups()
    if fraction is not None:
        length = timedelta(microseconds=10 ** max(6 - len(fraction), 0))
    else:
        parts = {"seconds": second, "minutes": minute, "hours": hour}
        unit = next((name for name, digits in parts.items() if digits), "days")
        length = timedelta(**{unit: 1})
    try:
        return named_time + (length - timedelta(microseconds=1))
    except OverflowError:
        return named_time


_NAMED = re.compile(
    r"\d{4}-?\d\d-?\d\d(?:[T ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:[.,](\d+))?)?)?)?(?![-\dW])"
)
_KINDS = click.Choice([one.value for one in Kind])
COLLECTION_HELP = "Table, queue or resource."
_OPTIONS = (
    click.option(
        "--transaction", help="Number of the transaction in its log; of rows also NUMBER@COMMIT."
    ),
    click.option("--gtrid", help="Global transaction, by the beginning of its id in any spelling."),
    click.option(
        "--since",
        metavar="TIME",
        callback=moment_of,
        help="Not before this time; UTC unless it has a zone.",
    ),
    click.option(
        "--until",
        metavar="TIME",
        callback=last_moment_of,
        help="Not after this time; a day, minute ... is meant to its end.",
    ),
    click.option(
        "--from-lsn",
        type=click.IntRange(0),
        help="Not before this LSN; of a row the number of its commit.",
    ),
    click.option("--to-lsn", type=click.IntRange(0), help="Not after this LSN."),
    click.option(
        "--kind",
        "kinds",
        type=_KINDS,
        multiple=True,
        metavar="KIND",
        help="add, commit ...; repeatable.",
    ),
    click.option("--outcome", help="Of a record valid, torn ...; of a row its fate."),
    click.option("--resource", help="Resource that the record names."),
    click.option("--where-body", "body", help="Text, or hex after 0x, in the body or a value."),
)
_NAMES = ("transaction", "gtrid", "key", "since", "until", "from_lsn", "to_lsn", "resource", "body")
_KEY = click.option("--key", help="Key of the row, or id of the record.")


def filter_options(command: _Command) -> _Command:
    """Add the options of the filter that every command has."""
    return _KEY(filter_options_but_key(command))


def filter_options_but_key(command: _Command) -> _Command:
    """Add those options to a command that has the key as its argument."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def wanted_of(options: dict[str, Any], fates: frozenset[Fate] = frozenset()) -> Filter:
    """Take the options of the filter out of all options, and return the filter.

    Raises:
        click.UsageError: nothing can lie between the times, or the LSNs.
    """
    kinds, outcome = options.pop("kinds"), options.pop("outcome")
    found = Filter(
        fates,
        table=options.pop("collection", None),
        kinds=frozenset(map(Kind, kinds)),
        outcome=outcome and outcome.lower().replace("-", "_"),
        **{name: options.pop(name) for name in _NAMES},
    )
    for names, (first, last) in {
        ("--since", "--until"): (ns_of(found.since), ns_of(found.until)),
        ("--from-lsn", "--to-lsn"): (found.from_lsn, found.to_lsn),
    }.items():
        if first is not None and last is not None and first > last:
            raise click.UsageError(f"{' is after '.join(names)}: nothing lies between")
    return found
