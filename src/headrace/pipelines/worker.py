"""What a Python worker of Spark does for itself.

Spark has a worker collect garbage after every task. That looks at every object of every module that was imported:
some 50 ms of processor time, which is more than a small batch costs. So what a worker has imported by the end of its
first task of a kind is put where the collector does not look.
"""

from __future__ import annotations

import gc

__all__ = ["settle"]

_settled: set[str] = set()


def settle(kind: str) -> None:
    """Say that a task of this kind has done its imports: they are for good."""
    if kind not in _settled:
        _settled.add(kind)
        gc.collect()
        gc.freeze()
