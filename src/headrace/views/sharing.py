"""Which views this process keeps, where several processes keep views in one store.

Those that share a store are a consumer group, and each has some parts of the work (``feed/membership``). Views are
dealt out to the parts in the order of their names, so every process has as many as the others, or one more. Two
processes may disagree for a moment, about who is a member or which views there are: then both try, and the store's
fence lets only the one write that took the view last.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Protocol

from headrace.errors import HeadraceError
from headrace.feed.membership import PARTS
from headrace.views.catalog import ViewName

__all__ = ["Member", "Sharing"]

RETRY_AFTER_S = 1.0


class Member(Protocol):
    """A process among those that share a store."""

    @property
    def parts(self) -> frozenset[int]:
        """The parts of the work that are this process's."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why it may be told no parts, if so."""
        ...

    def poll(self) -> None:
        """See whether that has changed."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class Sharing:
    """This process's share. ``join`` makes it a member; it is called again until it works."""

    def __init__(self, join: Callable[[], Member]) -> None:
        self._trouble: str | None = "it is not known yet which views this node keeps"
        self._join = join
        self._member: Member | None = None
        self._retry_at = 0.0

    @property
    def trouble(self) -> str | None:
        """Why this process may keep no views, if so."""
        return self._trouble or (self._member.trouble if self._member is not None else None)

    def poll(self, now: float) -> None:
        """Join, or see what has changed. Until that works, nothing is this process's."""
        if self._member is None and now >= self._retry_at:
            self._retry_at = now + RETRY_AFTER_S
            try:
                self._member = self._join()
                self._trouble = None
            except HeadraceError as error:
                self._trouble = error.message
        if self._member is not None:
            self._member.poll()

    def kept(self, views: Iterable[ViewName]) -> set[ViewName]:
        """Of all views of the catalog, those that are kept here."""
        parts = self._member.parts if self._member is not None else frozenset()
        return {view for rank, view in enumerate(sorted(views)) if rank % PARTS in parts}

    def clears(self, view: ViewName) -> bool:
        """Whether a view that is no more is taken out of the store here."""
        parts = self._member.parts if self._member is not None else frozenset()
        return zlib.crc32("/".join(view).encode()) % PARTS in parts

    def close(self) -> None:
        """Leave."""
        if self._member is not None:
            self._member.close()
            self._member = None
