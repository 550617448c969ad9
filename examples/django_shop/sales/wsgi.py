"""The application for a server; the coordinator recovers before the first request."""

from __future__ import annotations

from django.core.wsgi import get_wsgi_application

from tallystick.services.transactions.integrations.django import manager

application = get_wsgi_application()
manager()
