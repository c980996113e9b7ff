"""Pipelines over HTTP: the graph, queries, late and dead rows, alerts, and views as they change."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from headrace.errors import NotFound, UnknownTopic
from headrace.operations.cluster import Cluster
from headrace.operations.filters import Wanted
from headrace.operations.groups import lags_of
from headrace.operations.queries import OVER, command_query, ensure_obeyed
from headrace.serving.asking import Asking, topic_of
from headrace.serving.deliveries import Deliveries
from headrace.serving.endpoints import Said
from headrace.serving.graph import graph, query_node
from headrace.serving.hub import word_of
from headrace.serving.pacing import Follower, paced
from headrace.serving.reading import newest
from headrace.serving.row_counts import RowCounts
from headrace.serving.sampler import Look
from headrace.views.store import offsets_of

__all__ = ["Watching"]


class Watching:
    """The handlers."""

    def __init__(self, on: Asking) -> None:
        self._on = on
        self._deliveries, self._counts = Deliveries(on.feeds), RowCounts(on.feeds)

    async def pipelines(self, _: Said) -> Any:
        """The graph."""
        self._on.sampler.watched()
        self._on.hub.ensure_known()
        look, queries = self._on.sampler.look or Look(0.0), self._on.hub.queries
        return await self._on.looks.run(self._graph, queries, look, await self._delivered(queries, look))

    def _graph(
        self, queries: list[dict[str, Any]], look: Look, delivered: dict[tuple[str, str], Any]
    ) -> dict[str, Any]:
        views = [
            {**state.spec.to_json(), "rows": self._on.hub.count(view, state), "state": word_of(state)}
            | {"behind": state.behind, "bad": state.bad}
            for view, state in sorted(self._on.hub.states.items())
        ]
        return graph(queries, views, look.topics, look.offsets, delivered)

    async def _delivered(self, queries: list[dict[str, Any]], look: Look) -> dict[tuple[str, str], dict[str, Any]]:
        alerts = [one for one in queries if one.get("kind") == "alert"]

        def counted() -> dict[tuple[str, str], dict[str, Any]]:
            return {(one["app"], one["name"]): self._deliveries.of(one, look) for one in alerts}

        return await self._on.threaded(counted) if alerts else {}

    async def query_detail(self, said: Said) -> Any:
        """One query."""
        entry = self._query(said["app"], said["name"])
        look = self._on.sampler.look
        shown = query_node(entry, look.offsets if look else {})
        progress = entry.get("progress") or {}
        return {
            **shown,
            "batches_ms": progress.get("batch_ms", []),
            "parts_ms": progress.get("parts_ms", {}),
            "positions": progress.get("positions", {}),
            "place": entry.get("place"),
            "pid": entry.get("pid"),
            "plan": self._on.hub.plan(said["app"], said["name"]),
        }

    async def command(self, said: Said) -> Any:
        """Stop or restart a query."""
        action, name = said["action"], f"{said['app']}.{said['name']}"
        if action not in ("stop", "restart"):
            raise NotFound(f"there is no command {action!r}", hint="commands: stop, restart")
        self._query(said["app"], said["name"])

        def done() -> dict[str, Any]:
            cluster = self._on.asked()
            before = ensure_obeyed(cluster, name)
            if action == "stop" and before["state"] in OVER:
                return {"query": name, "state": before["state"]}
            return {"query": name, "state": command_query(cluster, before, action)}

        return await self._on.threaded(done)

    def _query(self, app: str, name: str) -> dict[str, Any]:
        found = [one for one in self._on.hub.queries if (one.get("app"), one.get("name")) == (app, name)]
        if not found:
            self._on.hub.ensure_known()
            raise NotFound(f"there is no query {app}.{name}", hint="`headrace query list` shows those that there are")
        return found[0]

    async def asides(self, _: Said) -> Any:
        """The topics of late and dead rows. ``exact``: their rows were counted, not told from offsets."""
        look = self._on.look()

        def told(name: str, one: dict[str, Any]) -> dict[str, Any]:
            of, _, kind = name.rpartition(".")
            records, exact = self._counts.of(name, look)
            about = {"topic": name, "of": of, "kind": kind, "records": records, "exact": exact}
            return about | {key: one.get(key) for key in ("rate", "bytes")}

        def counted() -> list[dict[str, Any]]:
            found = sorted(look.topics.items())
            return [told(name, one) for name, one in found if name.endswith((".late", ".dead")) and not one["internal"]]

        return await self._on.threaded(counted)

    async def aside(self, said: Said) -> Any:
        """Late or dead rows, the newest first."""
        name = topic_of(said)
        if not name.endswith((".late", ".dead")):
            raise UnknownTopic(f"{name!r} is no topic of late or dead rows", hint="they end with .late and .dead")
        wanted = Wanted(value=said.get("value", ""))

        def found() -> list[dict[str, Any]]:
            with self._on.feeds.one() as feed:
                return newest(feed, name, said.get("limit", 100), wanted).records

        return {"topic": name, "rows": [_why(row) for row in reversed(await self._on.threaded(found))]}

    async def alerts(self, _: Said) -> Any:
        """All alerts."""
        self._on.hub.ensure_known()
        look, queries = self._on.look(), self._on.hub.queries
        counted = await self._delivered(queries, look)
        about = {(one.get("app"), one.get("name")): one for one in queries}
        return [
            {"app": app, "name": name, "topic": str(about[app, name].get("topic") or f"{app}.{name}")}
            | {"state": about[app, name].get("state"), **told}
            for (app, name), told in counted.items()
        ]

    async def alert(self, said: Said) -> Any:
        """Rows of an alert, the newest first, and what became of them."""
        entry = self._query(said["app"], said["name"])
        full = f"{said['app']}.{said['name']}"
        topic = str(entry.get("topic") or full)

        def found(cluster: Cluster) -> dict[str, Any]:
            with self._on.feeds.one() as feed:
                rows = newest(feed, topic, said.get("limit", 100), Wanted()).records
                known = set(cluster.topic_names())
                dead = newest(feed, f"{full}.dead", 1000, Wanted()).records if f"{full}.dead" in known else []
            lags = {one.partition: one.committed for one in lags_of(cluster, f"{full}.delivery", [topic])}
            buried = {row["key"]: _why(row) for row in dead if row.get("key")}
            for row in rows:
                grave = buried.get(f"{topic}/{row['partition']}/{row['offset']}")
                sent = row["offset"] < lags.get(row["partition"], 0)
                row["delivery"] = "dead" if grave else "sent" if sent else "waiting"
                row["detail"] = grave["detail"] if grave else None
            return {"topic": topic, "rows": rows[::-1]}

        return await self._on.ask(found)

    async def view_frames(self, said: Said) -> Response:
        """What changes in a view, a few frames a second."""
        view, state = self._on.hub.find(said["name"])
        since = said.get("last_event_id") or said.get("from")
        follower = Follower(self._on.feeds, state.spec.topic, {})
        place = dict(state.offsets) | (offsets_of(since) if since else {})
        await self._on.threaded(lambda: follower.begin(place))

        async def known() -> dict[int, int] | None:
            await self._on.hub.news(0.5)
            now = self._on.hub.states.get(view)
            return dict(now.offsets) if now is not None and now.spec.topic == follower.topic else None

        return self._on.stream(paced(follower, known, lambda: self._on.hub.stopping, self._on.streaming))


def _why(row: dict[str, Any]) -> dict[str, Any]:
    """A late or dead row, with what its headers say of it."""
    said = {one["name"].removeprefix("headrace."): one.get("value") for one in row["headers"]}
    known = ("reason", "detail", "query", "event_time", "watermark")
    origin = {name: said.get(name) for name in ("topic", "partition", "offset", "timestamp")}
    why = {name: said.get(name) for name in known}
    if why["reason"] is None:  # a dead letter of a queue
        why |= {"reason": said.get("__dlq.errors.message"), "query": said.get("__dlq.errors.group")}
    return {**row, **why, "from": origin}
