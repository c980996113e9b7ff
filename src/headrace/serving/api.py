"""The HTTP API.

::

    GET  /views                    all views: columns, key, version, rows, state
    GET  /views/NAME               rows: where, order, select, limit, offset; format=json|csv|arrow; wait_for=VERSION
    GET  /views/NAME/KEY           one row; key values separated by slashes, or a JSON object or list
    GET  /views/NAME/changes       server-sent events; from=VERSION|start|now, until=VERSION, or Last-Event-ID
    POST /query                    read-only SQL: {"sql", "params", "limit"}, or SQL as plain text
    GET  /queries                  the state of the queries behind the views
    GET  /ping /ready /version     it answers; its views are there; which version it is
    GET  /                         the page

NAME is ``view`` or ``app.view``. Reads say which version they reflect (``version``, and the header Headrace-Version).
Errors are ``{"error", "detail", "hint"}``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from headrace import __version__
from headrace.errors import HeadraceError, InvalidQuery, UnknownView
from headrace.serving.answers import ARROW, FORMATS, failure, json_response, table_response
from headrace.serving.changes import follow
from headrace.serving.guard import Guard
from headrace.serving.hub import Hub
from headrace.views.catalog import ViewSpec
from headrace.views.columns import Column
from headrace.views.materialiser import ViewState
from headrace.views.question import asked, by_key
from headrace.views.store import SqlLimits, offsets_of, version

__all__ = ["build_api"]

PAGE = Path(__file__).parent / "page"
MAX_BODY_BYTES = 1 << 20
MAX_WAIT_S = 30.0
SQL_AT_ONCE = 4

_PAGE_FILES = {"/": ("index.html", "text/html"), "/page.js": ("page.js", "text/javascript")}
_PAGE_FILES["/page.css"] = ("page.css", "text/css")


def build_api(hub: Hub, host: str, limits: SqlLimits | None = None) -> Starlette:
    """The app over a hub; ``host`` is where it listens."""
    api = _Api(hub, limits or SqlLimits())

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        hub.start()
        try:
            yield
        finally:
            await asyncio.to_thread(hub.stop)

    routes = [
        Route("/ping", api.ping),
        Route("/ready", api.ready),
        Route("/version", api.version),
        Route("/queries", api.queries),
        Route("/query", api.query, methods=["POST"]),
        Route("/views", api.views),
        Route("/views/{name}", api.view),
        Route("/views/{name}/changes", api.changes),
        Route("/views/{name}/{key:path}", api.row),
        *(Route(path, _page(*file)) for path, file in _PAGE_FILES.items()),
    ]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Guard, host=host)],
        exception_handlers={HeadraceError: _told, HTTPException: _refused},
    )


def _page(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def page(_: Request) -> Response:
        return FileResponse(PAGE / name, media_type=kind)

    return page


async def _told(_: Request, error: Exception) -> Response:
    assert isinstance(error, HeadraceError)
    return failure(error)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = "there is nothing here" if error.status_code == 404 else error.detail
    return json_response({"error": f"{sentence}: {request.url.path}"}, error.status_code)


class _Api:
    """The handlers."""

    def __init__(self, hub: Hub, limits: SqlLimits) -> None:
        self._hub = hub
        self._limits = limits
        self._sql_turns = asyncio.Semaphore(SQL_AT_ONCE)

    async def ping(self, _: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def version(self, _: Request) -> Response:
        return json_response({"version": __version__})

    async def ready(self, _: Request) -> Response:
        trouble = self._hub.trouble()
        told: dict[str, Any] = {"ready": trouble is None}
        return json_response(told | ({"reason": trouble} if trouble else {}), 503 if trouble else 200)

    async def queries(self, _: Request) -> Response:
        return json_response(self._hub.queries)

    async def views(self, _: Request) -> Response:
        def listed() -> list[dict[str, Any]]:
            return [_described(state, self._hub.count(view, state)) for view, state in sorted(self._hub.states.items())]

        return json_response(await asyncio.to_thread(listed))

    async def view(self, request: Request) -> Response:
        view, state = self._hub.find(request.path_params["name"])
        given = request.query_params
        form = given.get("format") or ("arrow" if ARROW in request.headers.get("accept", "") else "json")
        if form not in FORMATS:
            raise InvalidQuery(f"format={form} is not known", hint=f"formats: {', '.join(FORMATS)}")
        if unknown := set(given) - {"where", "order", "select", "limit", "offset", "format", "wait_for", "timeout"}:
            raise InvalidQuery(
                f"there is no parameter {sorted(unknown)[0]!r}", hint="conditions are written where=COLUMN=VALUE"
            )
        if (late := await self._late(request, view)) is not None:
            return late
        question = asked(
            state.spec,
            where=given.getlist("where"),
            order=given.get("order"),
            select=given.get("select"),
            limit=given.get("limit"),
            offset=given.get("offset"),
        )

        def answered() -> Response:
            answer = self._hub.reader.select(view, question)
            [offsets] = answer.versions.values()
            about = {"app": view[0], "view": view[1], "version": version(offsets)}
            return table_response(answer, about, form, offsets)

        return await asyncio.to_thread(answered)

    async def row(self, request: Request) -> Response:
        view, state = self._hub.find(request.path_params["name"])
        key = _key(state.spec, request.path_params["key"])
        if (late := await self._late(request, view)) is not None:
            return late
        answer = await asyncio.to_thread(self._hub.reader.select, view, by_key(state.spec, key))
        [offsets] = answer.versions.values()
        headers = {"Headrace-Version": version(offsets)}
        if not answer.rows:
            response = failure(UnknownView(f"view {state.spec.full_name} has no row {request.path_params['key']!r}"))
            response.headers.update(headers)
            return response
        row = dict(zip((column.name for column in answer.columns), answer.rows[0], strict=True))
        told = {"app": view[0], "view": view[1], "version": version(offsets), "row": row}
        return json_response(told, headers=headers)

    async def _late(self, request: Request, view: tuple[str, str]) -> Response | None:
        """Wait for the version that the request wants to see; the answer to give if it does not come."""
        wanted = request.query_params.get("wait_for")
        if wanted is None:
            return None
        timeout = min(_seconds(request.query_params.get("timeout", "10")), MAX_WAIT_S)
        if await self._hub.reached(view, offsets_of(wanted), timeout):
            return None
        at = version(self._hub.states[view].offsets)
        return json_response({"error": f"version {wanted} did not come within {timeout:g} s", "version": at}, 504)

    async def changes(self, request: Request) -> Response:
        view, _ = self._hub.find(request.path_params["name"])
        since = request.headers.get("last-event-id") or request.query_params.get("from")
        events = follow(self._hub, view, since, request.query_params.get("until"))
        first = await anext(events)

        async def all_events() -> AsyncIterator[bytes]:
            yield first
            async for event in events:
                yield event

        return StreamingResponse(all_events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def query(self, request: Request) -> Response:
        statement, parameters, limits = _query(request, await _body(request), self._limits)
        async with self._sql_turns:
            answer = await asyncio.to_thread(self._hub.reader.sql, statement, parameters, limits)
        if ARROW in request.headers.get("accept", ""):
            return table_response(answer, {}, "arrow")
        told = {
            "columns": [{"name": column.name, "type": column.type} for column in answer.columns],
            "rows": answer.rows,
            "versions": {name: version(offsets) for name, offsets in answer.versions.items()},
            "truncated": answer.truncated,
        }
        return json_response(told)


def _described(state: ViewState, rows: int | None) -> dict[str, Any]:
    spec = state.spec
    word = "waiting" if state.trouble or not state.build else "rebuilding" if state.rebuilding else "live"
    return {
        **spec.to_json(),
        "version": version(state.offsets),
        "rows": rows,
        "state": "catching up" if word == "live" and not state.caught_up else word,
        "behind": state.behind,
        "bad": state.bad,
        "last_bad": state.last_bad,
        "trouble": state.trouble,
    }


async def _body(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise InvalidQuery(f"a query has at most {MAX_BODY_BYTES} bytes")
    return body


def _query(request: Request, body: bytes, limits: SqlLimits) -> tuple[str, list[Any], SqlLimits]:
    try:
        if not request.headers.get("content-type", "").startswith("application/json"):
            return body.decode(), [], limits
        said = json.loads(body)
        statement, parameters, rows = said["sql"], said.get("params", []), said.get("limit", limits.rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidQuery("the request is not a query", hint='send {"sql": "SELECT ...", "params": []}') from error
    scalars = isinstance(parameters, list) and all(isinstance(p, str | int | float | None) for p in parameters)
    if not isinstance(statement, str) or not scalars or not isinstance(rows, int) or rows < 0:
        raise InvalidQuery("the request is not a query", hint='send {"sql": "SELECT ...", "params": []}')
    bounded = SqlLimits(limits.seconds, min(rows, limits.rows), limits.cells_bytes, limits.value_bytes)
    return statement, parameters, bounded


def _key(spec: ViewSpec, text: str) -> list[Any]:
    """The key values that a path names, as a store keeps them."""
    columns = spec.key_columns
    if text[:1] in ("{", "["):
        try:
            said = json.loads(text)
        except ValueError as error:
            raise InvalidQuery(f"{text!r} is not a key: it is not JSON") from error
        values = [said.get(column.name) for column in columns] if isinstance(said, dict) else said
        if len(values) != len(columns) or (isinstance(said, dict) and said.keys() != {c.name for c in columns}):
            raise InvalidQuery(f"the key of view {spec.full_name!r} is {', '.join(spec.key)}")
        return [_stored(column, value) for column, value in zip(columns, values, strict=True)]
    parts = [text] if len(columns) == 1 else text.split("/")
    if len(parts) != len(columns):
        path = "/".join(name.upper() for name in spec.key)
        raise InvalidQuery(f"the key of view {spec.full_name!r} is {', '.join(spec.key)}", hint=f"write .../{path}")
    return [column.parse(part) for column, part in zip(columns, parts, strict=True)]


def _stored(column: Column, value: Any) -> Any:
    if value is None:
        return None
    return column.parse(value if isinstance(value, str) else json.dumps(value))


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError as error:
        raise InvalidQuery(f"timeout={text} is not a number of seconds") from error
