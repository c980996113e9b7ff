"""The command line: ``headrace up``, ``topic``, ``produce``, ``consume``, ``group``, ``log``.

One file per command or command group. ``app`` puts them together, ``failures`` turns errors into one sentence and a
hint, ``options`` and ``output`` hold what all commands share, ``cluster`` reaches a running node or Apache Kafka.
What is slow to import is imported inside the functions that need it; ``quick`` starts a node without any of it.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``headrace`` command."""
    if sys.argv[1:2] == ["up"]:
        from headrace.cli.quick import quick_up

        code = quick_up(sys.argv[2:])
        if code is not None:
            sys.exit(code)
    from headrace.cli.app import app

    app(prog_name="headrace")
