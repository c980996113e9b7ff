"""Decoded state that a worker keeps between batches, under the chunk that it was last brought up to.

Only ever a cache: what is found here counts if that chunk is still in the bucket's log, and is brought up to date from
the chunks behind it. It is bounded: the buckets that were not used for longest go, and are read again when needed. So
the state of one bucket has to fit into a worker's memory, not all of it: the bucket used last stays whatever its size,
and a worker warns once of each operator that has a bucket larger than the bound.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict

from headrace.pipelines.state.keyed_state import KeyedState

__all__ = ["Cache", "worker_cache"]

_logger = logging.getLogger(__name__)
_MEGABYTES = "HEADRACE_STATE_CACHE_MB"
Name = tuple[str, int, int]
"""Query, operator, bucket."""


class Cache:
    """States by name, with the id of the last chunk in them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: OrderedDict[Name, tuple[str, KeyedState, int]] = OrderedDict()
        self._total = 0
        self._warned: set[tuple[str, int]] = set()

    def take(self, name: Name) -> tuple[str, KeyedState] | None:
        """What is kept of a bucket; it is not kept any more, until it is put back."""
        found = self._found.pop(name, None)
        if found is None:
            return None
        self._total -= found[2]
        return found[:2]

    def put(self, name: Name, chunk: str, state: KeyedState) -> None:
        """Keep a bucket's state, which is as after this chunk."""
        self.take(name)
        size = state.size
        self._found[name] = (chunk, state, size)
        self._total += size
        while self._total > self._limit and len(self._found) > 1:
            self.take(next(iter(self._found)))
        if size > self._limit:
            self._warn(name, size)

    def _warn(self, name: Name, size: int) -> None:
        query, operator, bucket = name
        if (query, operator) in self._warned:
            return
        self._warned.add((query, operator))
        _logger.warning(
            "bucket %d of the state of %s, operator %d takes %d MB of memory, and a worker is to keep %d MB in all. "
            "Hint: stop the app and put the keys into more buckets: `headrace query rescale %s --buckets N`",
            bucket, query, operator, size >> 20, self._limit >> 20, query,
        )  # fmt: skip


def _limit() -> int:
    """A quarter of the machine's memory for all cores together, or what the environment says for a worker."""
    said = os.environ.get(_MEGABYTES)
    if said is not None:
        return int(said) << 20
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return memory // 4 // (os.cpu_count() or 1)


worker_cache = Cache(_limit())
