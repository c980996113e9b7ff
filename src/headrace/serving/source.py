"""The log that is looked at: how its feeds are opened, and how it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import ServerAway
from headrace.feed.cluster import Cluster as Asked
from headrace.operations.cluster import Cluster

if TYPE_CHECKING:
    from headrace.feed import Feed

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """A cluster; ``bootstrap`` None: there is only the feed, and nobody to be asked."""

    open_feed: Callable[[], Feed]
    bootstrap: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def connect(self) -> Cluster:
        """A connection for an operator's questions; ServerAway if nobody answers."""
        return Cluster(self._address(), self.settings)

    def asked(self) -> Asked:
        """A connection for the catalog."""
        return Asked(self._address(), self.settings)

    def _address(self) -> str:
        if self.bootstrap is None:
            raise ServerAway("there is no cluster to be asked")
        return self.bootstrap
