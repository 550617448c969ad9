"""A web service whose workers share one journal: what it answers with 201 is durable.

``JOURNAL=/var/lib/orders/log gunicorn --workers 4 --threads 16 gunicorn_journal:app`` takes the
body of each POST as a record and answers with its number. Each worker opens the journal at its
first request, after the fork; one sync serves the requests of all of them, and when a worker is
killed or replaced, the others go on.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from tallystick import Journal

StartResponse = Callable[[str, list[tuple[str, str]]], object]


@cache
def journal() -> Journal:
    """Return this worker's journal."""
    opened = Journal(os.environ["JOURNAL"], shared=True)
    atexit.register(opened.close)
    return opened


def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """Append the body of a POST to the journal; answer with its LSN and the worker's process."""
    if environ["REQUEST_METHOD"] != "POST":
        start_response("405 Method Not Allowed", [("Allow", "POST"), ("Content-Length", "0")])
        return []
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    answer = f"{journal().append(body)} {os.getpid()}\n".encode()
    start_response("201 Created", [("Content-Length", str(len(answer)))])
    return [answer]
