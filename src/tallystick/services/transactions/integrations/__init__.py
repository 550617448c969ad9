"""The transaction manager under frameworks that have transactions of their own.

In: sessions of SQLAlchemy (`sessions`), aliases of Django's databases (`django`). Out: the same
calls within a global transaction; what they mean there, or an error that says what to call instead.
"""
