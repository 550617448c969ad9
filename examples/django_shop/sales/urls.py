"""Addresses of the shop."""

from __future__ import annotations

from django.urls import path

from sales import views

urlpatterns = [path("orders/<str:number>", views.order), path("state", views.state)]
