"""The table of endpoints: paths, parameters, bodies, roles. Routes and the OpenAPI document are made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.serving.access import Role
from headrace.serving.answers import FORMATS
from headrace.serving.endpoints import EVENTS, Endpoint, Handler, Parameter, body, listed, number, record, text
from headrace.views.question import DEFAULT_LIMIT
from headrace.views.statement import ANSWER_BYTES

if TYPE_CHECKING:
    from headrace.serving.login import Login
    from headrace.serving.metrics import NodeMetrics
    from headrace.serving.operating import Operating
    from headrace.serving.overviewing import Overviewing
    from headrace.serving.viewing import Viewing
    from headrace.serving.watching import Watching

__all__ = [
    "metrics_endpoint",
    "operating_endpoints",
    "overview_endpoints",
    "session_endpoints",
    "view_endpoints",
    "watching_endpoints",
]

_TEXT = {"type": ["string", "null"]}
_FILTERS = (
    text("key", "only records whose key holds this text"),
    text("value", "only records whose value holds this text"),
    text("header", "only records with this header: NAME or NAME=TEXT"),
)
_SINCE = text("from", "0:12,1:7: offset by partition")
_PARTITION = number("partition", "only this one", 0, 1_000_000)
_LIMIT = number("limit", "at most so many", 0, 1000)
_WAIT = (
    text("wait_for", "wait until the view reflects at least this version"),
    text("timeout", "so many seconds at most"),
)
_NEW = {"type": "string", "minLength": 1, "maxLength": 249}


def metrics_endpoint(metrics: NodeMetrics) -> Endpoint:
    """What Prometheus asks."""
    return Endpoint(
        "GET", "/metrics", metrics.answer, "All metrics of the node.", media="text/plain", answer={"type": "string"}
    )


def view_endpoints(views: Viewing, frames: Handler) -> list[Endpoint]:
    """Views, and what the node says of itself."""
    more = {"type": "boolean", "description": "there are more rows than the limit that holds where none is asked for"}
    rows = record("app", "view", "version", "columns", "rows", "truncated", truncated=more)
    where = Parameter("where", {"type": "string", "maxLength": 4096}, "COLUMN=VALUE; also != < <= > >=", True)
    return [
        Endpoint("GET", "/ping", views.ping, "It answers.", None, media="text/plain", answer={"type": "string"}),
        Endpoint("GET", "/ready", views.ready, "Its views are up to date.", None, answer=record("ready")),
        Endpoint("GET", "/version", views.version, "Which version it is.", None, answer=record("version")),
        Endpoint(
            "GET", "/queries", views.queries, "The queries behind the views.", answer=listed(record("app", "name"))
        ),
        Endpoint(
            "POST",
            "/query",
            views.query,
            "Read-only SQL over views; a body of text/plain is taken as SQL.",
            body=record(
                "sql",
                sql={"type": "string"},
                params={"type": "array", "items": {"type": ["string", "number", "null"]}},
                limit={"type": "integer", "minimum": 0},
            ),
            answer=record(
                "columns",
                "rows",
                "versions",
                "truncated",
                truncated={"type": "boolean", "description": "there are more rows, or larger ones, than are answered"},
            ),
        ),
        Endpoint(
            "GET", "/views", views.views, "All views.", answer=listed(record("app", "name", "columns", "key", "state"))
        ),
        Endpoint(
            "GET",
            "/views/{name}",
            views.view,
            f"Rows of a view; more than {ANSWER_BYTES >> 20} MiB at once are refused.",
            parameters=(
                where,
                text("order", "columns; - for descending: -revenue,region"),
                text("select", "columns"),
                text("limit", f"at most so many rows, or all; {DEFAULT_LIMIT} if nothing is said"),
                text("offset", "after so many rows"),
                text("format", "how rows are written", enum=list(FORMATS)),
                Parameter("exact", {"type": "boolean"}, "in JSON: integers beyond 2^53 as text, for JavaScript"),
                *_WAIT,
            ),
            answer=rows,
        ),
        Endpoint(
            "GET",
            "/views/{name}/changes",
            views.changes,
            "What changes, as server-sent events.",
            parameters=(text("from", "a version, start, or now"), text("until", "end at this version")),
            media=EVENTS,
        ),
        Endpoint(
            "GET",
            "/views/{name}/frames",
            frames,
            "What changes, a few frames a second.",
            parameters=(_SINCE,),
            media=EVENTS,
        ),
        Endpoint(
            "GET", "/views/{name}/{key:path}", views.row, "One row.", parameters=_WAIT, answer=record("row", "version")
        ),
    ]


def session_endpoints(login: Login) -> list[Endpoint]:
    """Logging in and out."""
    return [
        Endpoint("GET", "/session", login.session, "Who you are here.", None, answer=record("role", "needed")),
        Endpoint(
            "POST",
            "/session",
            login.login,
            "Open a session with a token.",
            None,
            body=body("token", token={"type": "string", "maxLength": 4096}),
            answer=record("role"),
        ),
        Endpoint("DELETE", "/session", login.logout, "End the session.", None, answer=record("role")),
    ]


def operating_endpoints(on: Operating) -> list[Endpoint]:
    """Topics, groups, queues, pipelines."""
    change = Role.CHANGE
    place = text(
        "from", "newest, beginning, end, an offset, -N before the end, @TIME, or 0:12,1:7 (offset by partition)"
    )
    headers: dict[str, Any] = {"type": "object", "additionalProperties": _TEXT}
    index = {"type": "integer", "minimum": 0, "maximum": 1_000_000}
    return [
        Endpoint("GET", "/topics", on.topics, "All topics.", answer=listed(record("name", "partitions", "records"))),
        Endpoint("GET", "/topics/{topic}", on.topic, "A topic.", answer=record("name", "partitions", "settings")),
        Endpoint(
            "GET",
            "/topics/{topic}/records",
            on.records,
            "Records from a place on, or the newest.",
            parameters=(
                place,
                _PARTITION,
                _LIMIT,
                *_FILTERS,
                Parameter("whole", {"type": "boolean"}, "do not cut long values"),
            ),
            answer=record(
                "topic",
                "records",
                "next",
                "complete",
                "scanned",
                next={"type": "string", "description": "where to go on: `from` of the next question"},
                complete={
                    "type": "boolean",
                    "description": "whether there is nothing more; of the newest: whether all was looked at",
                },
                scanned={"type": "integer", "description": "how many records were looked at"},
            ),
        ),
        Endpoint(
            "POST",
            "/topics/{topic}/records",
            on.produce,
            "Write a record. It goes on in the trace of the request (header traceparent).",
            change,
            body=body(key=_TEXT, value=_TEXT, headers=headers, partition=index),
            answer=record("topic", "partition", "offset"),
        ),
        Endpoint(
            "GET",
            "/topics/{topic}/tail",
            on.tail,
            "Records as they come, a few frames a second.",
            parameters=(_SINCE, _PARTITION, *_FILTERS),
            media=EVENTS,
        ),
        Endpoint("GET", "/groups", on.groups, "All groups.", answer=listed(record("group", "state", "lag"))),
        Endpoint("GET", "/groups/{group:path}", on.group, "A group.", answer=record("group", "members", "offsets")),
        Endpoint(
            "POST",
            "/groups/{group:path}",
            on.move,
            "Move a group without members: to replay or to skip.",
            change,
            body=body(
                "to", to={"type": "string", "maxLength": 100}, topic=_NEW, partition=index, dry_run={"type": "boolean"}
            ),
            answer=record("group", "moved", "offsets"),
        ),
        Endpoint("GET", "/queues", on.queues, "All queues.", answer=listed(record("group", "topics", "lag"))),
        Endpoint(
            "GET",
            "/queues/{group:path}",
            on.queue,
            "A queue and its next records.",
            parameters=(_LIMIT,),
            answer=record("group", "partitions", "records", "settings"),
        ),
        Endpoint(
            "GET", "/dead-letters", on.dead_letters, "Dead-letter topics.", answer=listed(record("topic", "letters"))
        ),
        Endpoint(
            "GET",
            "/dead-letters/{topic}",
            on.letters,
            "Dead letters that were not redriven.",
            parameters=(_LIMIT,),
            answer=record("topic", "letters", "count"),
        ),
        Endpoint(
            "POST",
            "/dead-letters/{topic}/redrive",
            on.redrive,
            "Send dead letters back to where they came from.",
            change,
            body=body(letters={"type": "array", "items": {"type": "string"}}, all={"type": "boolean"}),
            answer=record("topic", "redriven"),
        ),
    ]


def overview_endpoints(on: Overviewing) -> list[Endpoint]:
    """The whole at a glance."""
    return [
        Endpoint(
            "GET", "/overview", on.overview, "The whole at a glance.", answer=record("topics", "groups", "queries")
        ),
        Endpoint("GET", "/live", on.live, "The overview, about once a second.", media=EVENTS),
    ]


def watching_endpoints(on: Watching) -> list[Endpoint]:
    """Queries, late and dead rows, alerts."""
    return [
        Endpoint(
            "GET", "/pipelines", on.pipelines, "Streams, queries and views as a graph.", answer=record("nodes", "edges")
        ),
        Endpoint("GET", "/queries/{app}/{name}", on.query_detail, "A query.", answer=record("state", "batches_ms")),
        Endpoint(
            "POST",
            "/queries/{app}/{name}/{action}",
            on.command,
            "Stop or restart a query.",
            Role.CHANGE,
            answer=record("query", "state"),
        ),
        Endpoint("GET", "/aside", on.asides, "Topics of late and dead rows.", answer=listed(record("topic", "kind"))),
        Endpoint(
            "GET",
            "/aside/{topic}",
            on.aside,
            "Late or dead rows, with their reasons.",
            parameters=(_LIMIT, text("value", "only rows that hold this text")),
            answer=record("topic", "rows"),
        ),
        Endpoint("GET", "/alerts", on.alerts, "Alerts.", answer=listed(record("app", "name", "rows"))),
        Endpoint(
            "GET",
            "/alerts/{app}/{name}",
            on.alert,
            "Rows of an alert, and what became of them.",
            parameters=(_LIMIT,),
            answer=record("topic", "rows"),
        ),
    ]
