"""Views in PostgreSQL: one schema per app, rows and offsets in one transaction.

``address`` (which database, and how it is reached) · ``types`` (the table of types) · ``tables`` (what is in a
schema) · ``belonging`` (to which log) · ``ownership`` (the fence) · ``writing`` (rows in bulk) · ``store`` ·
``reading`` · ``strangers`` (their SQL, checked by the database itself before it runs).
"""

from __future__ import annotations
