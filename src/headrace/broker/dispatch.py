"""The table of APIs, made from the handler modules: what is advertised is what is handled.

A handler module (``handlers/<api>.py``) has ``API_KEY`` and ``VERSIONS = (min, max)``, and one of

- ``async def handle(broker, request, context)``, which returns the response. Its first step is taken at once, outside a
  task, so that a connection's requests start in their order: it may await futures, but not ``asyncio.timeout``;
- ``def serve(connection, version, correlation_id, frame, pos)`` and ``FLEXIBLE_SINCE``: raw, for the hot path.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.broker import handlers

if TYPE_CHECKING:
    from headrace.broker.connection import Connection

__all__ = ["Api", "load_apis"]

Serve = Callable[["Connection", int, int, memoryview, int], None]
Handle = Callable[[Any, Any, Any], Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class Api:
    """One API as this broker has it."""

    key: int
    name: str
    min_version: int
    max_version: int
    handle: Handle
    serve: Serve | None
    flexible_since: int


def load_apis() -> dict[int, Api]:
    """Every API that there is a handler for, by key, in the order of the keys."""
    apis = []
    for info in pkgutil.iter_modules(handlers.__path__):
        module = importlib.import_module(f"{handlers.__name__}.{info.name}")
        if hasattr(module, "API_KEY"):
            apis.append(_api(info.name, module))
    return {api.key: api for api in sorted(apis, key=lambda api: api.key)}


def _api(name: str, module: Any) -> Api:
    low, high = module.VERSIONS
    serve = getattr(module, "serve", None)
    handle = getattr(module, "handle", None)
    return Api(module.API_KEY, name, low, high, handle, serve, getattr(module, "FLEXIBLE_SINCE", 0))  # type: ignore[arg-type]
