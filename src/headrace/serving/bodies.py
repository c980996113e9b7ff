"""Bodies of requests: bounded in size and time, JSON, and what their schema says. Only the few words of JSON Schema
that we use."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from headrace.errors import InvalidInput, InvalidQuery, RecordTooLarge

__all__ = ["MAX_BODY_BYTES", "BodyTooSlow", "body_of", "fields_of"]

MAX_BODY_BYTES = 1 << 20
BODY_S = 30.0
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


class BodyTooSlow(InvalidInput):
    """A body that did not come in its time."""


async def body_of(request: Request) -> bytes:
    """The body; RecordTooLarge if it is larger than bodies may be, BodyTooSlow if it does not come."""
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                found += piece
                if len(found) > MAX_BODY_BYTES:
                    raise RecordTooLarge(f"a request has at most {MAX_BODY_BYTES} bytes")
    except TimeoutError:
        raise BodyTooSlow(f"the body of the request did not come within {BODY_S:g} s") from None
    except ClientDisconnect:
        raise InvalidQuery("the request was broken off") from None
    return bytes(found)


async def fields_of(request: Request, schema: dict[str, Any]) -> dict[str, Any]:
    """The fields of a JSON body that fits its schema."""
    given = await body_of(request)
    try:
        said = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise InvalidQuery("the body is not JSON") from error
    _ensure(said, schema, "the body")
    found: dict[str, Any] = said
    return found


def _ensure(value: Any, schema: dict[str, Any], what: str) -> None:
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        raise InvalidQuery(f"{what} is not {' or '.join(kinds)}")
    if isinstance(value, str):
        _ensure_text(value, schema, what)
    if isinstance(value, int) and "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        raise InvalidQuery(f"{what} is from {schema['minimum']} to {schema['maximum']}")
    if isinstance(value, list):
        for item in value:
            _ensure(item, schema.get("items", {}), f"an item of {what}")
    if isinstance(value, dict):
        _ensure_object(value, schema, what)


def _ensure_text(value: str, schema: dict[str, Any], what: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidQuery(f"{what} is not text") from error
    if len(value) < schema.get("minLength", 0) or len(value) > schema.get("maxLength", MAX_BODY_BYTES):
        raise InvalidQuery(f"{what} is too short or too long")
    if "enum" in schema and value not in schema["enum"]:
        raise InvalidQuery(f"{what} is none of {', '.join(schema['enum'])}")


def _ensure_object(value: dict[str, Any], schema: dict[str, Any], what: str) -> None:
    properties = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            raise InvalidQuery(f"{what} has no {name!r}")
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in properties:
            _ensure(item, properties[name], name)
        elif others is False:
            raise InvalidQuery(f"{what} has a field {name!r} that nobody knows", hint=f"known: {', '.join(properties)}")
        else:
            _ensure_text(name, {}, f"a name in {what}")
            _ensure(item, others if isinstance(others, dict) else {}, f"{name!r} of {what}")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])
