"""The command line: ``headrace up``, ``topic``, ``produce``, ``consume``, ``group``, ``log``.

One file per command or command group. ``app`` puts them together, ``failures`` turns errors into one sentence and a
hint, ``options`` and ``output`` hold what all commands share, ``cluster`` reaches a running node or Apache Kafka.
What is slow to import is imported inside the functions that need it: ``headrace up`` must listen soon.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``headrace`` command."""
    from headrace.cli.app import app

    app(prog_name="headrace")
