"""Orders and items, each in its own database."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order, in the database of the orders."""

    request = models.CharField(max_length=64, unique=True)
    item = models.CharField(max_length=40)


class Item(models.Model):
    """How many are left of an item, in the database of the stock."""

    name = models.CharField(max_length=40, primary_key=True)
    left = models.IntegerField()
