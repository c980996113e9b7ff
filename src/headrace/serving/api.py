"""The HTTP API: routes made from the table of endpoints, the page's files, and what happens to errors.

::

    /views ...                     rows, single rows, SQL (/query), changes
    /overview /live                the whole at a glance
    /topics ... /groups ... /queues ... /dead-letters ...     what operators look at and change
    /pipelines /queries ... /aside ... /alerts ...            queries and what became of rows
    /session                       logging in
    /metrics                       everything that Prometheus may want to know of the node
    /ping /ready /version /openapi.json
    /                              the page

``/openapi.json`` says it all. Reads of views say which version they reflect (``version``, and the header
Headrace-Version). Errors are ``{"error", "detail", "hint"}``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from headrace.errors import HeadraceError, InvalidInput
from headrace.serving.access import Access, Role
from headrace.serving.answers import failure, json_response
from headrace.serving.asking import Asking
from headrace.serving.bodies import fields_of
from headrace.serving.door import Door
from headrace.serving.endpoints import Endpoint, openapi, parameters_of
from headrace.serving.feeds import Feeds
from headrace.serving.guard import Guard
from headrace.serving.hub import Hub
from headrace.serving.login import Login
from headrace.serving.metrics import NodeMetrics
from headrace.serving.operating import Operating
from headrace.serving.overviewing import Overviewing
from headrace.serving.sampler import Sampler
from headrace.serving.source import Source
from headrace.serving.table import (
    metrics_endpoint,
    operating_endpoints,
    overview_endpoints,
    session_endpoints,
    view_endpoints,
    watching_endpoints,
)
from headrace.serving.viewing import Viewing
from headrace.serving.watching import Watching
from headrace.views.store import SqlLimits

__all__ = ["build_api"]

PAGE = Path(__file__).parent / "page"
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def build_api(
    hub: Hub,
    host: str,
    source: Source,
    access: Access | None = None,
    limits: SqlLimits | None = None,
    metrics: NodeMetrics | None = None,
) -> Starlette:
    """The app over a hub; ``host`` is where it listens, ``source`` the log that is looked at."""
    access = access or Access()
    door = Door(access)
    feeds, sampler = Feeds(source.open_feed), Sampler(source.connect)
    asking = Asking(hub, feeds, sampler, source.asked)
    watching, viewing = Watching(asking), Viewing(asking, limits or SqlLimits(), door)
    endpoints = [
        *view_endpoints(viewing, watching.view_frames),
        *session_endpoints(Login(door)),
        *overview_endpoints(Overviewing(asking)),
        *operating_endpoints(Operating(asking)),
        *watching_endpoints(watching),
        *([metrics_endpoint(metrics)] if metrics is not None else []),
    ]
    document = openapi(endpoints)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        hub.start()
        sampler.start()
        try:
            yield
        finally:
            sampler.stop()
            viewing.close()
            asking.close()
            await asyncio.to_thread(feeds.close)
            await asyncio.to_thread(hub.stop)

    async def described(_: Request) -> Response:
        return json_response(document)

    return Starlette(
        routes=[*_routes(endpoints, door), Route("/openapi.json", described), *_page_routes()],
        lifespan=lifespan,
        middleware=[Middleware(Guard, host=host, token_needed=access.needed)],
        exception_handlers={HeadraceError: _told, HTTPException: _refused},
    )


def _routes(endpoints: Sequence[Endpoint], door: Door) -> list[Route]:
    by_path: dict[str, dict[str, Endpoint]] = {}
    for one in endpoints:
        by_path.setdefault(one.path, {})[one.method] = one
    return [Route(path, _handler(by_method, door), methods=list(by_method)) for path, by_method in by_path.items()]


def _handler(by_method: dict[str, Endpoint], door: Door) -> Callable[[Request], Awaitable[Response]]:
    async def answered(request: Request) -> Response:
        endpoint = by_method["GET" if request.method == "HEAD" else request.method]
        if endpoint.role is not None:
            refusal = _refusal(endpoint, await door.role_of(request))
            if refusal is not None:
                return refusal
        said = parameters_of(request, endpoint)
        if endpoint.body is not None and endpoint.body.get("additionalProperties") is False:
            said |= await fields_of(request, endpoint.body)
        said |= {**request.path_params, "last_event_id": request.headers.get("last-event-id"), "request": request}
        found = await endpoint.handler(said)
        return found if isinstance(found, Response) else json_response(found)

    return answered


def _refusal(endpoint: Endpoint, role: Role | None) -> Response | None:
    if role is Role.CHANGE or role is endpoint.role:
        return None
    if role is None:
        refused = failure(
            InvalidInput("a token is needed", hint="log in on the page, or send Authorization: Bearer"), 401
        )
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused
    return failure(InvalidInput("your token may look, not change"), 403)


def _page_routes() -> list[Route]:
    """The page's files, known by name before anybody asks: no path that is asked for reaches the disk."""
    files = {f"/page/{path.relative_to(PAGE).as_posix()}": path for path in PAGE.rglob("*") if path.suffix in _KINDS}
    return [
        Route("/", _file(PAGE / "index.html")),
        *(Route(name, _file(path)) for name, path in sorted(files.items())),
    ]


def _file(path: Path) -> Callable[[Request], Awaitable[Response]]:
    async def page(_: Request) -> Response:
        return FileResponse(path, media_type=_KINDS[path.suffix])

    return page


async def _told(_: Request, error: Exception) -> Response:
    assert isinstance(error, HeadraceError)
    return failure(error)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = "there is nothing here" if error.status_code == 404 else error.detail
    return json_response({"error": f"{sentence}: {request.url.path}"}, error.status_code, dict(error.headers or {}))
