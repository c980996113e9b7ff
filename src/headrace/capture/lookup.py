"""Asking a database what a table is."""

from __future__ import annotations

from importlib import import_module

from headrace.capture.columns import TableLook
from headrace.capture.declarations import Source

__all__ = ["look_up"]

_HOMES = {"sqlite": "sqlite", "postgres": "postgres", "mariadb": "mariadb", "mysql": "mariadb"}


def look_up(source: Source) -> TableLook:
    """The columns and the key of a table, as its database has them now."""
    found = import_module(f"headrace.capture.{_HOMES[source.kind]}").look(source)
    assert isinstance(found, TableLook)
    return found
