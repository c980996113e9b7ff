"""Views over HTTP: rows, single rows, SQL, changes; and what the node says of itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headrace import __version__
from headrace.errors import InvalidQuery, UnknownView
from headrace.serving.answers import ARROW, failure, json_response, table_response
from headrace.serving.asking import Asking
from headrace.serving.bodies import body_of
from headrace.serving.changes import follow
from headrace.serving.door import Door, TooManyGuesses
from headrace.serving.endpoints import Said
from headrace.serving.hub import word_of
from headrace.serving.pool import Pool
from headrace.views.catalog import ViewSpec
from headrace.views.columns import Column
from headrace.views.materialiser import ViewState
from headrace.views.question import asked, by_key
from headrace.views.store import SqlLimits, offsets_of, version

__all__ = ["Viewing"]

MAX_WAIT_S = 30.0
SQL_AT_ONCE = 4


class Viewing:
    """The handlers."""

    def __init__(self, on: Asking, limits: SqlLimits, door: Door) -> None:
        self._on, self._hub, self._limits, self._door = on, on.hub, limits, door
        self._sql = Pool("sql", SQL_AT_ONCE)

    def close(self) -> None:
        """Begin nothing more."""
        self._sql.close()

    async def ping(self, _: Said) -> Response:
        """It answers."""
        return Response("ok\n", media_type="text/plain")

    async def version(self, _: Said) -> Response:
        """Which version it is, and which log's views it serves."""
        return json_response({"version": __version__, "log": self._hub.log_id})

    async def ready(self, said: Said) -> Response:
        """Ready or not is told to everybody; why not, to those who may look."""
        trouble = self._hub.trouble()
        told: dict[str, Any] = {"ready": trouble is None}
        if trouble and await self._may_look(said["request"]):
            told["reason"] = trouble
        return json_response(told, 503 if trouble else 200)

    async def _may_look(self, request: Request) -> bool:
        try:
            return await self._door.role_of(request) is not None
        except TooManyGuesses:
            return False

    async def queries(self, _: Said) -> Response:
        """How queries are doing."""
        return json_response(self._hub.queries)

    async def views(self, _: Said) -> Response:
        """All views."""

        def listed() -> list[dict[str, Any]]:
            return [_described(state, self._hub.count(view, state)) for view, state in sorted(self._hub.states.items())]

        return json_response(await self._on.looks.run(listed))

    async def view(self, said: Said) -> Response:
        """Rows."""
        request: Request = said["request"]
        view, state = self._hub.find(said["name"])
        form = said.get("format") or ("arrow" if ARROW in request.headers.get("accept", "") else "json")
        if (late := await self._late(said, view)) is not None:
            return late
        question = asked(
            state.spec,
            where=said.get("where", ()),
            order=said.get("order"),
            select=said.get("select"),
            limit=said.get("limit"),
            offset=said.get("offset"),
        )

        def answered() -> Response:
            answer = self._hub.reader.select(view, question)
            [offsets] = answer.versions.values()
            about = {"app": view[0], "view": view[1], "version": version(offsets)}
            return table_response(answer, about, form, offsets, exact=bool(said.get("exact")))

        return await self._on.reads.run(answered)

    async def row(self, said: Said) -> Response:
        """One row."""
        view, state = self._hub.find(said["name"])
        key = _key(state.spec, said["key"])
        if (late := await self._late(said, view)) is not None:
            return late
        answer = await self._on.reads.run(self._hub.reader.select, view, by_key(state.spec, key))
        [offsets] = answer.versions.values()
        headers = {"Headrace-Version": version(offsets)}
        if not answer.rows:
            response = failure(UnknownView(f"view {state.spec.full_name} has no row {said['key']!r}"))
            response.headers.update(headers)
            return response
        row = dict(zip((column.name for column in answer.columns), answer.rows[0], strict=True))
        told = {"app": view[0], "view": view[1], "version": version(offsets), "row": row}
        return json_response(told, headers=headers)

    async def _late(self, said: Said, view: tuple[str, str]) -> Response | None:
        """Wait for the version that the request wants to see; the answer to give if it does not come."""
        wanted = said.get("wait_for")
        if wanted is None:
            return None
        timeout = min(_seconds(said.get("timeout", "10")), MAX_WAIT_S)
        if await self._hub.reached(view, offsets_of(wanted), timeout):
            return None
        at = version(self._hub.states[view].offsets)
        return json_response({"error": f"version {wanted} did not come within {timeout:g} s", "version": at}, 409)

    async def changes(self, said: Said) -> Response:
        """Every change. The first event is made before it is answered: so a wrong question is an error."""
        view, _ = self._hub.find(said["name"])
        since = said["last_event_id"] or said.get("from")
        events = follow(self._hub, view, since, said.get("until"), self._on.streaming)
        first = await anext(events)

        async def all_events() -> AsyncIterator[bytes]:
            yield first
            async for event in events:
                yield event

        return self._on.stream(all_events())

    async def query(self, said: Said) -> Response:
        """SQL."""
        request: Request = said["request"]
        statement, parameters, limits = _query(request, await body_of(request), self._limits)
        answer = await self._sql.run(self._hub.reader.sql, statement, parameters, limits)
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
    return {
        **spec.to_json(),
        "version": version(state.offsets),
        "rows": rows,
        "state": word_of(state),
        "behind": state.behind,
        "bad": state.bad,
        "last_bad": state.last_bad,
        "trouble": state.trouble,
    }


def _query(request: Request, body: bytes, limits: SqlLimits) -> tuple[str, list[Any], SqlLimits]:
    try:
        if not request.headers.get("content-type", "").startswith("application/json"):
            return body.decode(), [], limits
        said = json.loads(body)
        statement, parameters, rows = said["sql"], said.get("params", []), said.get("limit", limits.rows)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
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
        except (ValueError, RecursionError) as error:
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
