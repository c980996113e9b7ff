"""The pipelines as a graph, and how each query is doing: pure, made of what the catalog and the last look say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.operations.cluster import Partition, PartitionOffsets

__all__ = ["graph", "lag_of", "query_node"]


def lag_of(query: Mapping[str, Any], offsets: Mapping[Partition, PartitionOffsets]) -> int | None:
    """How many records a query has not read yet; None if it has not said how far it is."""
    positions = (query.get("progress") or {}).get("positions") or {}
    behind = [
        max(0, offsets[topic, int(index)].end - int(position))
        for topic, found in positions.items()
        for index, position in found.items()
        if (topic, int(index)) in offsets
    ]
    return sum(behind) if behind else None


def query_node(query: Mapping[str, Any], offsets: Mapping[Partition, PartitionOffsets]) -> dict[str, Any]:
    """What is shown of a query wherever it appears."""
    progress = query.get("progress") or {}
    return {
        "app": query.get("app", ""),
        "name": query.get("name", ""),
        "kind": query.get("kind", "view"),
        "state": query.get("state", "unknown"),
        "since": query.get("since"),
        "rate": progress.get("rate", 0.0) if query.get("state") == "running" else 0.0,
        "lag": lag_of(query, offsets),
        "watermark": query.get("watermark"),
        "rows_in": query.get("rows_in", 0),
        "late": query.get("late", 0),
        "dead": query.get("dead", 0),
        "state_rows": progress.get("state_rows"),
        "state_bytes": progress.get("state_bytes"),
        "batch": query.get("batch"),
        "batch_ms": (progress.get("batch_ms") or [None])[-1],
        "restarts": query.get("restarts", 0),
        "last_error": query.get("last_error"),
        "reads": list(query.get("reads") or []),
        "topic": query.get("topic", ""),
    }


def graph(
    queries: Iterable[Mapping[str, Any]],
    views: Iterable[Mapping[str, Any]],
    topics: Mapping[str, Mapping[str, Any]],
    offsets: Mapping[Partition, PartitionOffsets],
    deliveries: Mapping[tuple[str, str], Mapping[str, Any]],
) -> dict[str, Any]:
    """Nodes and edges: streams to queries, queries to views, derived streams and alerts."""
    nodes: dict[str, dict[str, Any]] = {}
    edges: list[dict[str, str]] = []
    by_view = {(view["app"], view["name"]): view for view in views}
    made = {str(query.get("topic")) for query in queries if query.get("topic")}

    def topic_node(topic: str) -> str:
        known = topics.get(topic, {})
        kind = "derived" if topic in made else "stream"
        about = {"records": known.get("records"), "rate": known.get("rate", 0.0), "bytes": known.get("bytes")}
        nodes.setdefault(f"topic/{topic}", {"id": f"topic/{topic}", "kind": kind, "name": topic, **about})
        return f"topic/{topic}"

    for query in queries:
        shown = query_node(query, offsets)
        app, name = shown["app"], shown["name"]
        at = f"query/{app}/{name}"
        nodes[at] = {**shown, "id": at, "kind": "query", "makes": shown["kind"]}
        edges += [{"from": topic_node(topic), "to": at} for topic in shown["reads"]]
        speed = {"rate": shown["rate"], "watermark": shown["watermark"]}
        view = by_view.get((app, name))
        if view is not None:
            end = f"view/{app}/{name}"
            about = {key: view.get(key) for key in ("rows", "state", "behind", "bad", "topic")}
            nodes[end] = {"id": end, "kind": "view", "app": app, "name": name, **about, **speed}
        elif shown["kind"] == "alert":
            end = f"alert/{app}/{name}"
            about = {"topic": shown["topic"], **deliveries.get((app, name), {})}
            nodes[end] = {"id": end, "kind": "alert", "app": app, "name": name, **about, **speed}
        elif shown["topic"]:
            end = topic_node(shown["topic"])
        else:
            continue
        edges.append({"from": at, "to": end})
    _join(nodes, edges)
    return {"nodes": list(nodes.values()), "edges": edges}


def _join(nodes: dict[str, dict[str, Any]], edges: list[dict[str, str]]) -> None:
    """A view's topic that is read by others is the view."""
    views = {f"topic/{node['topic']}": at for at, node in nodes.items() if node["kind"] == "view" and node.get("topic")}
    for edge in edges:
        edge["from"] = views.get(edge["from"], edge["from"])
    for gone in views:
        nodes.pop(gone, None)
