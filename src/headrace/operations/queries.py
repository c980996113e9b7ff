"""Queries of running apps: how they are doing, and commands to them, by way of the catalog."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from headrace.errors import NotFound, NotNow

if TYPE_CHECKING:
    from headrace.feed.cluster import Cluster

__all__ = ["OVER", "command_query", "ensure_obeyed", "queries_of"]

PATIENCE_S = 20.0
OVER = ("stopped", "failed")


def queries_of(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """All queries by APP.QUERY, as their runner last said; gone, if that is no more."""
    from headrace.feed.catalog import read_catalog
    from headrace.feed.presence import now

    found = read_catalog(cluster, "query")
    return {f"{one['app']}.{one['name']}": now(one) for _, one in sorted(found.items())}


def ensure_obeyed(cluster: Cluster, name: str) -> dict[str, Any]:
    """How a query is doing; an error if there is none of that name, or nobody who would obey a command to it."""
    from headrace.feed.presence import GONE

    known = queries_of(cluster)
    if name not in known:
        raise NotFound(f"there is no query {name!r}.", hint=f"there are: {', '.join(known) or 'none'}")
    one = known[name]
    if one["state"] == GONE:
        raise NotNow(
            f"the run of app {one['app']!r} (process {one['pid']}) is gone: it was killed, or has crashed.",
            hint="`headrace run FILE` starts it, and all its queries with it, where they were",
        )
    return one


def command_query(cluster: Cluster, before: dict[str, Any], action: str, patience_s: float = PATIENCE_S) -> str:
    """Have a query stopped or restarted; the state that it has come to. NotNow if nobody obeys."""
    from headrace.feed.catalog import send_command

    name = f"{before['app']}.{before['name']}"
    send_command(cluster, before["app"], before["name"], action)
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        now = queries_of(cluster).get(name, before)
        over = now["state"] in OVER
        if over if action == "stop" else now["since"] != before["since"] and not over:
            state: str = now["state"]
            return state
        time.sleep(0.2)
    raise NotNow(
        f"the run of app {before['app']!r} (process {before['pid']}) does not answer.",
        hint="is it still running? `headrace run FILE` starts it, and all its queries with it",
    )
