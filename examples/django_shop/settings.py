"""Settings of the shop: orders in one database, the stock in another, one transaction over both.

``ORDERS`` and ``STOCK`` in the environment are URLs: ``postgresql://user@host:port/name`` or
``mysql://user@host:port/name``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql

pymysql.install_as_MySQLdb()

ENGINES = {
    "postgresql": "django.db.backends.postgresql",
    "mysql": "django.db.backends.mysql",
    "mariadb": "django.db.backends.mysql",
}


def database(variable: str) -> dict[str, Any]:
    """Return Django's settings for the database of a URL in the environment."""
    if variable not in os.environ:
        raise SystemExit(f"set {variable}, for example to postgresql://user@localhost:5432/name")
    url = urlsplit(os.environ[variable])
    return {
        "ENGINE": ENGINES[url.scheme],
        "NAME": url.path.lstrip("/"),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "HOST": url.hostname or "",
        "PORT": url.port or "",
    }


DATABASES = {"default": {}, "orders": database("ORDERS"), "stock": database("STOCK")}
DATABASE_ROUTERS = ["sales.routers.ByModel"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TALLYSTICK = {
    "COORDINATOR": Path(os.environ.get("COORDINATOR", "coordinator")),
    "DATABASES": ["orders", "stock"],
    "OPTIONS": {"orphan_interval": 2.0},
}

INSTALLED_APPS = ["sales"]
ROOT_URLCONF = "sales.urls"
WSGI_APPLICATION = "sales.wsgi.application"
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
SECRET_KEY = "only for this example"
USE_TZ = True
