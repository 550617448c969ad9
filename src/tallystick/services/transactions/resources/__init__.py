"""Databases, stores and queues as resources of a transaction.

In: a URL, an engine or a store of the application. Out: a `Resource` that calls its driver and
turns the driver's errors into the answers of `resource`. Drivers are imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, TypeAlias, cast

from tallystick.callables import require_plain_calls
from tallystick.errors import TransactionUsageError
from tallystick.services.transactions.resource import Resource

_SCHEMES = {
    "postgresql": "postgres:PostgresResource",
    "postgres": "postgres:PostgresResource",
    "mariadb": "mysql:MySqlResource",
    "mysql": "mysql:MySqlResource",
    "sqlite": "sqlite:SqliteResource",
}
_CALLS = (
    "begin", "in_doubt", "commit", "rollback", "preflight", "close", "outcomes", "outcomes_of",
    "has_outcome", "forget_outcomes", "identity", "reap",
)  # fmt: skip
"""Calls of a resource that are not awaited."""
_ACCEPTED = (
    "a Resource, a URL (postgresql://, mariadb://, mysql://, sqlite:///path), a SQLAlchemy "
    "engine, a PageStore or a Journal"
)


class Store(Protocol):
    """A `PageStore` or a journal."""

    def as_resource(self, name: str) -> Any:
        """Return it as the resource of a transaction manager."""
        ...


class Engine(Protocol):
    """An engine of SQLAlchemy, which need not be installed."""

    @property
    def dialect(self) -> Any:
        """The dialect of the database."""
        ...

    def raw_connection(self) -> Any:
        """Return a connection of the driver."""
        ...


Adaptable: TypeAlias = Resource | Store | Engine | str
"""What can take part in transactions."""


def adapt(name: str, thing: Any) -> Resource:
    """Return ``thing`` as a resource under the unique name ``name``.

    Args:
        name: ASCII, not empty.
        thing: a `Resource`, a URL, a SQLAlchemy engine, a `PageStore` or a `Journal`.

    Raises:
        TransactionUsageError: it cannot take part in transactions.
    """
    if not name or not name.isascii() or "\0" in name:
        raise TransactionUsageError(
            f"{name!r} cannot name a resource", expected="ASCII without NUL, not empty"
        )
    if hasattr(thing, "as_resource"):
        return cast(Resource, thing.as_resource(name))
    if hasattr(thing, "in_doubt") and hasattr(thing, "begin"):
        require_plain_calls(thing, _CALLS, f"the resource {name!r}")
        return _named(name, cast(Resource, thing))
    if isinstance(thing, str):
        return _from_url(name, thing)
    if type(thing).__module__.startswith("sqlalchemy."):
        from tallystick.services.transactions.resources.sqlalchemy import from_engine

        return from_engine(name, thing)
    raise TransactionUsageError(
        f"{type(thing).__name__} cannot be the resource {name!r}", expected=_ACCEPTED
    )


def _named(name: str, resource: Resource) -> Resource:
    if resource.name != name:
        raise TransactionUsageError(
            f"the resource {resource.name!r} is registered as {name!r}",
            advice="Its branches are found again by its name: use the same one",
        )
    return resource


def _from_url(name: str, url: str) -> Resource:
    scheme = url.partition("://")[0].partition("+")[0]
    if scheme not in _SCHEMES:
        raise TransactionUsageError(f"no resource for {scheme!r}", expected=_ACCEPTED)
    module, _, class_name = _SCHEMES[scheme].partition(":")
    made = getattr(import_module(f"{__name__}.{module}"), class_name)
    try:
        return cast(Resource, made.from_url(name, url))
    except ValueError:
        # The cause is not chained: it may quote the URL, which holds a password.
        raise TransactionUsageError(
            f"the URL of {name!r} cannot be read",
            expected=f"{scheme}://user:password@host:port/database",
            advice="Write ':', '/', '@', '[' and '%' in names and passwords as %3A, %2F, %40, %5B, "
            "%25",
        ) from None
