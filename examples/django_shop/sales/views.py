"""One request, one transaction over both databases."""

from __future__ import annotations

import logging

from django.db import transaction
from django.db.models import F
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from sales.models import Item, Order
from tallystick import BusyError, InDoubtError, RolledBackError
from tallystick.services.transactions.integrations.django import atomic_all


@csrf_exempt
def order(_: HttpRequest, number: str) -> HttpResponse:
    """Order a pear: a row in one database, and one less in the other."""
    try:
        with atomic_all("orders", "stock"):
            made, new = Order.objects.get_or_create(request=number, defaults={"item": "pear"})
            if new:
                Item.objects.filter(name="pear").update(left=F("left") - 1)
            transaction.on_commit(
                lambda: logging.info("ordered %s", number), using="orders", robust=True
            )
    except (RolledBackError, BusyError) as error:
        return JsonResponse({"again": str(error)}, status=503)
    except InDoubtError as error:  # the same request tells later
        return JsonResponse({"again": str(error)}, status=504)
    return JsonResponse({"order": made.pk})


def state(_: HttpRequest) -> HttpResponse:
    """Count orders, and pears."""
    return JsonResponse(
        {"orders": Order.objects.count(), "left": Item.objects.get(name="pear").left}
    )
