"""What a URL of JDBC gives besides the database: ``;name=value`` after its address.

In: a URL. Out: its address, and the values by names in small letters, as drivers take these.
"""

from __future__ import annotations


def split_url(url: str) -> tuple[str, dict[str, str]]:
    """Return the address in a URL, and its attributes by their names in small letters."""
    address, *attributes = url.split(";")
    pairs = (one.split("=", 1) for one in attributes if "=" in one)
    return address, {name.strip().lower(): value for name, value in pairs}
