"""Requests that are carried out once, and messages that leave with the rows they tell of.

In: handlers of requests (`keys`, `retry`, joined in `handlers`), and messages (`outbox`). Out: rows
in tables of ours in a database of the application, written in the same global transaction as its
own (`statements`), and deliveries of the messages (`relay`).
"""
