"""Start the shop: ``ORDERS=postgresql://… STOCK=mysql://… python manage.py serve PORT``.

``serve`` makes the tables that are not there, and answers requests in threads. Everything else is a
command of Django.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIServer, make_server

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")


class Server(ThreadingMixIn, WSGIServer):
    """A server for an example; a real one runs the application in gunicorn or uwsgi."""

    daemon_threads = True
    request_queue_size = 100


def serve(port: int) -> None:
    """Make the tables and answer requests."""
    import django

    django.setup()
    from django.core.management import call_command
    from sales.models import Item

    for alias in ("orders", "stock"):
        call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
    Item.objects.get_or_create(name="pear", defaults={"left": 1000})
    from sales.wsgi import application

    print(f"the shop is open at http://127.0.0.1:{port}/state", flush=True)
    make_server("127.0.0.1", port, application, Server).serve_forever()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]) if len(sys.argv) > 2 else 8000)
    else:
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)
