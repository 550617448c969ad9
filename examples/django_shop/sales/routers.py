"""Which model lives in which database."""

from __future__ import annotations

from typing import Any

HOMES = {"order": "orders", "item": "stock"}


class ByModel:
    """Sends each model to its database."""

    def db_for_read(self, model: Any, **_: Any) -> str | None:
        """Return the database of a model."""
        return HOMES.get(model._meta.model_name)

    db_for_write = db_for_read

    def allow_migrate(self, db: str, _: str, model_name: str | None = None, **__: Any) -> bool:
        """Let a table be made in its own database only."""
        return HOMES.get(model_name or "") == db
