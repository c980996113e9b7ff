"""NEXMark's queries as Headrace apps; each file runs with ``headrace run``."""

from benchmarks.nexmark.apps import highest, joins, patterns, rows, tables, windows

__all__ = ["APPS"]

APPS = (rows.app, windows.app, joins.app, highest.app, tables.app, patterns.app)
