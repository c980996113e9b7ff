"""What looking into Spark's plans needs, through its gateway."""

from __future__ import annotations

from typing import Any

__all__ = ["each"]


def each(found: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [found.apply(at) for at in range(found.size())]
