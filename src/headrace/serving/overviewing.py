"""The whole at a glance: rates, lag, freshness, errors, disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from headrace import __version__
from headrace.serving.asking import Asking
from headrace.serving.endpoints import Said
from headrace.serving.pacing import event
from headrace.serving.sampler import worst
from headrace.serving.troubles import troubles_of

__all__ = ["Overviewing", "behind_of"]

LIVE_EVERY_S = 1.0
WORST = 5


def behind_of(groups: Iterable[Mapping[str, Any]] | None) -> dict[str, Any]:
    """How far groups are behind, together, and for how many it is not known, or not in seconds."""
    if groups is None:
        return {"lag": None, "lag_seconds": None, "groups_unmeasured": 0, "groups_without_age": 0}
    found = [(one["lag"], one["lag_seconds"]) for one in groups]
    return {
        "lag": sum(lag or 0 for lag, _ in found),
        "lag_seconds": worst(0.0 if lag == 0 else seconds for lag, seconds in found),
        "groups_unmeasured": sum(lag is None for lag, _ in found),
        "groups_without_age": sum(lag != 0 and seconds is None for lag, seconds in found),
    }


class Overviewing:
    """The handlers."""

    def __init__(self, on: Asking) -> None:
        self._on = on

    async def overview(self, _: Said) -> Any:
        """The whole at a glance."""
        self._on.sampler.watched()
        return await self._on.looks.run(self._overview)

    def _overview(self) -> dict[str, Any]:
        look, hub = self._on.sampler.look, self._on.hub
        queries = hub.queries
        views = [state for _, state in sorted(hub.states.items())]
        counted = [hub.count(view, state) or 0 for view, state in sorted(hub.states.items())]
        topics = [one for one in look.topics.values() if not one["internal"]] if look else []
        groups = list(look.groups.values()) if look else []
        states = [str(one.get("state")) for one in queries]
        behind = sorted((one for one in groups if one["lag"]), key=lambda one: -(one["lag"] or 0))
        return {
            "version": __version__,
            "at": time.time(),
            "topics": len(topics),
            "partitions": sum(one["partitions"] for one in topics),
            "records": sum(one["records"] for one in topics),
            "bytes": sum(one["bytes"] or 0 for one in topics) if look and look.disk.sizes else None,
            "disk": {"total": look.disk.total, "free": look.disk.free} if look else {"total": None, "free": None},
            "brokers": look.brokers if look else 0,
            "rate": self._on.sampler.rate[-1][1] if self._on.sampler.rate else 0.0,
            "rates": [list(point) for point in self._on.sampler.rate],
            "busiest": sorted(topics, key=lambda one: -one.get("rate", 0.0))[:WORST],
            "groups": len(groups),
            **behind_of(look.groups.values() if look else None),
            "slowest": behind[:WORST],
            "queries": {state: states.count(state) for state in sorted(set(states))},
            "views": len(views),
            "rows": sum(counted),
            "views_behind": sum(state.behind for state in views),
            "view_freshness_seconds": worst(hub.freshness(state) for state in views) if hub.is_known else None,
            "late": sum(int(one.get("late") or 0) for one in queries),
            "dead": sum(int(one.get("dead") or 0) for one in queries),
            "troubles": troubles_of(look, self._on.sampler.trouble, queries, hub.captures, dict(hub.states)),
        }

    async def live(self, _: Said) -> Response:
        """The overview, about once a second."""

        async def events() -> Any:
            yield b"retry: 1000\n\n"
            while not self._on.hub.stopping:
                yield event("overview", str(int(time.time())), await self.overview({}))
                await asyncio.sleep(LIVE_EVERY_S)

        return self._on.stream(events())
