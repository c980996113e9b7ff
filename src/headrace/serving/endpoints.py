"""What an endpoint of the API is: declared once, from which its route, its checks and its part of OpenAPI are made."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from headrace import __version__
from headrace.errors import InvalidQuery
from headrace.serving.access import Role

__all__ = [
    "EVENTS",
    "Endpoint",
    "Handler",
    "Parameter",
    "Said",
    "body",
    "listed",
    "number",
    "openapi",
    "parameters_of",
    "record",
    "text",
]

EVENTS, JSON = "text/event-stream", "application/json"

Said = dict[str, Any]
"""What a request says: the names in its path, its parameters, the fields of its body, and the request itself."""

Handler = Callable[[Said], Awaitable[Any]]
"""Answers with a value for JSON, or with a response."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """Something that a request may say in its query, as text."""

    name: str
    schema: dict[str, Any]
    what: str
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path. ``role`` None: everybody may ask. ``body`` and ``answer`` are JSON schemas."""

    method: str
    path: str
    handler: Handler
    what: str
    role: Role | None = Role.LOOK
    parameters: tuple[Parameter, ...] = ()
    body: dict[str, Any] | None = None
    answer: dict[str, Any] | None = None
    media: str = JSON
    also: tuple[int, ...] = ()
    """Statuses beside those that every endpoint has."""

    @property
    def path_names(self) -> list[str]:
        """The names in its path."""
        return re.findall(r"{(\w+)(?::\w+)?}", self.path)


def text(name: str, what: str, **more: Any) -> Parameter:
    """A parameter that is text."""
    return Parameter(name, {"type": "string", "maxLength": 4096, **more}, what)


def number(name: str, what: str, least: int = 0, most: int = 1_000_000_000) -> Parameter:
    """A parameter that is a whole number."""
    return Parameter(name, {"type": "integer", "minimum": least, "maximum": most}, what)


def record(*required: str, **properties: Any) -> dict[str, Any]:
    """The schema of a JSON object: what it must have, and what else may be in it."""
    known = {name: {} for name in required} | properties
    return {"type": "object", "properties": known, "required": list(required)}


def listed(item: dict[str, Any]) -> dict[str, Any]:
    """The schema of a list."""
    return {"type": "array", "items": item}


def body(*required: str, **properties: Any) -> dict[str, Any]:
    """The schema of a request's JSON object: nothing else may be in it."""
    return {**record(*required, **properties), "additionalProperties": False}


def parameters_of(request: Request, endpoint: Endpoint) -> dict[str, Any]:
    """What the query of a request says, checked against what is declared."""
    known = {one.name: one for one in endpoint.parameters}
    found: dict[str, Any] = {}
    for name in request.query_params:
        if name not in known:
            among = ", ".join(known) or "none"
            raise InvalidQuery(f"there is no parameter {name!r}", hint=f"parameters: {among}")
        given = request.query_params.getlist(name)
        if len(given) > 1 and not known[name].repeatable:
            raise InvalidQuery(f"parameter {name!r} is given more than once")
        found[name] = given if known[name].repeatable else _checked(known[name], given[0])
    return found


def _checked(parameter: Parameter, given: str) -> Any:
    schema = parameter.schema
    if schema["type"] == "boolean":
        if given not in ("true", "false"):
            raise InvalidQuery(f"{parameter.name}={given} is neither true nor false")
        return given == "true"
    if schema["type"] == "integer":
        if not re.fullmatch(r"-?[0-9]{1,18}", given):
            raise InvalidQuery(f"{parameter.name}={given} is not a number")
        if not schema["minimum"] <= int(given) <= schema["maximum"]:
            raise InvalidQuery(f"{parameter.name} is from {schema['minimum']} to {schema['maximum']}")
        return int(given)
    if len(given) > schema.get("maxLength", len(given)):
        raise InvalidQuery(f"{parameter.name} has at most {schema['maxLength']} characters")
    if "enum" in schema and given not in schema["enum"]:
        raise InvalidQuery(f"{parameter.name}={given} is not known", hint=f"known: {', '.join(schema['enum'])}")
    return given


_ERROR = {"$ref": "#/components/schemas/Error"}
_STATUSES = {
    400: "the request makes no sense",
    401: "a token is needed",
    403: "refused: another site, another name, or a role that may only look",
    404: "there is no such thing",
    405: "the path has no such method",
    408: "the body did not come in time",
    409: "not now: the state is another one",
    413: "the body is too large",
    429: "too many at once",
    500: "a mistake of ours, which the node's own output explains",
    503: "the log or a store does not answer",
}


def openapi(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI document of these endpoints."""
    paths: dict[str, Any] = {}
    for one in endpoints:
        path = re.sub(r":\w+}", "}", one.path)
        paths.setdefault(path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace",
            "version": __version__,
            "description": "A node's views, topics, groups, queues and queries. Errors are a sentence, perhaps a hint.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": record("error", error={"type": "string"}, detail={}, hint={})},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"bearer": []}],
    }


def _operation(one: Endpoint) -> dict[str, Any]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, "maxLength": 249}}
        for name in one.path_names
    ]
    in_query = [
        {
            "name": item.name,
            "in": "query",
            "description": item.what,
            "schema": listed(item.schema) if item.repeatable else item.schema,
        }
        for item in one.parameters
    ]
    errors = {str(status): _answer(_STATUSES[status], _ERROR) for status in sorted({*_STATUSES, *one.also})}
    told: dict[str, Any] = {
        "summary": one.what,
        "operationId": f"{one.method.lower()} {re.sub(r':[a-z]+}', '}', one.path)}",
        "parameters": [*in_path, *in_query],
        "responses": {"200": _answer("the answer", one.answer or {}, one.media), **errors},
        "x-role": str(one.role) if one.role else "anybody",
    }
    if one.role is None:
        told["security"] = []
    if one.body is not None:
        told["requestBody"] = {"required": True, "content": {JSON: {"schema": one.body}}}
    return told


def _answer(what: str, schema: dict[str, Any], media: str = JSON) -> dict[str, Any]:
    return {"description": what, "content": {media: {"schema": schema}}}
