"""Threads for one kind of work, so that no kind has to wait for another.

A turn is over when its thread is done with the work, not when whoever asked has stopped waiting: so a store or a
cluster that does not answer is not asked by ever more threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from headrace.errors import ServerAway

__all__ = ["PATIENCE_S", "Pool"]

PATIENCE_S = 25.0

T = TypeVar("T")


class Pool:
    """``at_once`` threads; ``patience_s`` is how long work may take with the wait for its turn, None: for ever."""

    def __init__(self, kind: str, at_once: int, patience_s: float | None = PATIENCE_S) -> None:
        self._executor = ThreadPoolExecutor(at_once, kind)
        self._patience_s = patience_s

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do something in a thread; ServerAway if it takes too long."""
        loop = asyncio.get_running_loop()
        patience = asyncio.timeout(self._patience_s)
        try:
            async with patience:
                return await loop.run_in_executor(self._executor, partial(work, *arguments))
        except TimeoutError:
            if not patience.expired():
                raise
            raise ServerAway(f"there was no answer within {self._patience_s:.0f} s") from None

    def close(self) -> None:
        """Begin nothing more; what has begun is not waited for."""
        self._executor.shutdown(wait=False, cancel_futures=True)
